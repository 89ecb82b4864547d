// A feed-forward network of random numbers for tests of its parts: the weights in the engine's
// form, and as plain floats for references.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "engine/ffn/ffn_context.h"
#include "engine/ffn/ffn_step.h"
#include "kernels/quantize.h"

namespace thermocline::ffn {

// Two complete ranges and a part of one.
inline constexpr int kHidden = 64, kNeurons = 2 * kRange + 77;

struct SmallNetworkOptions {
  kernels::DType type = kernels::DType::kF32;
  model::Layout layout = model::Layout::kRows;
  bool gated = true;
  bool bias = false;
  bool down_rows = true;
  int layers = 1;
  const std::vector<std::vector<int>>* members = nullptr;
  int threads = 2;
};

class SmallNetwork {
 public:
  // [rows, cols] values of the engine's matrix.
  struct Matrix {
    int rows = 0, cols = 0;
    std::vector<float> values;
    std::vector<std::uint8_t> packed;
    std::vector<float> bias;

    float at(int row, int col) const {
      return values[static_cast<std::size_t>(row) * static_cast<std::size_t>(cols) +
                    static_cast<std::size_t>(col)];
    }
    // Row `row` times x, plus the bias.
    double Times(int row, const float* x) const {
      double sum = bias.empty() ? 0 : static_cast<double>(bias[static_cast<std::size_t>(row)]);
      for (int c = 0; c < cols; ++c)
        sum += static_cast<double>(at(row, c)) * static_cast<double>(x[c]);
      return sum;
    }
  };
  struct Layer {
    Matrix gate, up, down;  // [F, D], [F, D]; down [F, D] or, in columns, [D, F]
  };

  explicit SmallNetwork(const SmallNetworkOptions& options = {})
      : options_(options), random_(7), pool_(options.threads) {
    architecture_ = **model::FindArchitecture("llama");
    architecture_.gated = options.gated;
    config.architecture = &architecture_;
    config.hidden_size = kHidden;
    config.intermediate_size = kNeurons;
    config.num_hidden_layers = options.layers;
    config.hidden_act = model::Activation::kRelu;
    weights.layers.resize(static_cast<std::size_t>(options.layers));
    layers.resize(weights.layers.size());
    for (std::size_t l = 0; l < layers.size(); ++l) MakeLayer(layers[l], weights.layers[l]);
    multiplier_ = std::make_unique<nn::Multiplier>(ops(), pool_, nn::PanelScratchBytes(weights));
  }

  FfnContext context() {
    return {config, weights, ops(), pool_, *multiplier_, NeuronRanges(kNeurons, options_.members)};
  }
  static const kernels::OpTable& ops() { return *kernels::CpuOps(); }

  model::ModelConfig config;
  model::Weights weights;
  std::vector<Layer> layers;  // [L]

 private:
  void MakeLayer(Layer& from, model::LayerWeights& to) {
    if (options_.gated) MakeRows(from.gate, to.gate);
    MakeRows(from.up, to.up);
    if (options_.down_rows) {
      Fill(from.down, kNeurons, kHidden, kHidden);
      Pack(from.down, /*rows=*/true);
      to.down_rows = {options_.type, kNeurons, kHidden, from.down.packed.data()};
    } else {
      Fill(from.down, kHidden, kNeurons, 0);
      Pack(from.down, /*rows=*/false);
      to.down.weight = {options_.type, kHidden, kNeurons, from.down.packed.data()};
    }
    if (!from.down.bias.empty()) to.down.bias = from.down.bias.data();
  }

  void MakeRows(Matrix& from, model::NeuronMatrix& to) {
    Fill(from, kNeurons, kHidden, kNeurons);
    Pack(from, options_.layout == model::Layout::kRows);
    to.linear.weight = {options_.type, kNeurons, kHidden, from.packed.data()};
    if (!from.bias.empty()) to.linear.bias = from.bias.data();
    to.layout = options_.layout;
  }

  void Fill(Matrix& m, int rows, int cols, int biases) {
    std::normal_distribution<float> normal;
    m.rows = rows;
    m.cols = cols;
    m.values.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
    for (float& value : m.values) value = normal(random_);
    m.bias.resize(options_.bias ? static_cast<std::size_t>(biases) : 0);
    for (float& value : m.bias) value = normal(random_);
  }

  // Packs the matrix; its values become those that the type represents.
  void Pack(Matrix& m, bool rows) {
    const std::size_t row_bytes = kernels::RowBytes(options_.type, m.cols);
    std::vector<std::uint8_t> stored(row_bytes * static_cast<std::size_t>(m.rows));
    for (int r = 0; r < m.rows; ++r) {
      std::uint8_t* row = stored.data() + static_cast<std::size_t>(r) * row_bytes;
      float* values = m.values.data() + static_cast<std::ptrdiff_t>(r) * m.cols;
      kernels::QuantizeRow(options_.type, values, m.cols, row);
      kernels::DequantizeRow(options_.type, row, m.cols, values);
    }
    m.packed.resize(kernels::PackedBytes(options_.type, m.rows, m.cols));
    for (int r = 0; r < m.rows; r += kernels::kPanelRows) {
      const std::size_t at = static_cast<std::size_t>(r) * row_bytes;
      const int count = std::min(kernels::kPanelRows, m.rows - r);
      if (rows) {
        kernels::PackRows(options_.type, stored.data() + at, count, m.cols, m.packed.data() + at);
      } else {
        kernels::PackPanel(options_.type, stored.data() + at, count, m.cols, m.packed.data() + at);
      }
    }
  }

  const SmallNetworkOptions options_;
  std::mt19937 random_;
  base::WorkerPool pool_;
  model::Architecture architecture_;
  std::unique_ptr<nn::Multiplier> multiplier_;
};

// Inputs of `tokens` tokens.
class SmallInput {
 public:
  explicit SmallInput(int tokens, unsigned seed = 1) : tokens_(tokens) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (nn::ActivationBuffer* each : {&hidden_, &residual_}) {
      each->Resize(tokens, kHidden);
      for (float& x : each->x) x = normal(random);
      for (int t = 0; t < tokens; ++t) nn::QuantizeToken(SmallNetwork::ops(), *each, t);
    }
  }
  FfnInput get() const { return {hidden_, residual_.x.data(), tokens_}; }
  FfnStep Step(const FfnPolicy& policy, int layer = 0) const { return {layer, get(), policy}; }
  const float* x(int token) const { return hidden_.x.data() + token * kHidden; }
  const float* residual(int token) const { return residual_.x.data() + token * kHidden; }

 private:
  int tokens_;
  nn::ActivationBuffer hidden_, residual_;
};

// Every third neuron and some consecutive ones, in another order for each layer.
inline std::vector<std::vector<int>> SomeMembers(int layers) {
  std::vector<std::vector<int>> out(static_cast<std::size_t>(layers));
  for (int l = 0; l < layers; ++l) {
    for (int i = 0; i < kNeurons; ++i)
      if ((i + l) % 3 == 0 || i / 100 == 2) out[static_cast<std::size_t>(l)].push_back(i);
  }
  return out;
}

inline double Relu(double x) { return std::max(0.0, x); }

}  // namespace thermocline::ffn
