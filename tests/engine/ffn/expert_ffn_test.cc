// A layer of experts computes the definition, with the same bits alone, together and on any number
// of threads.
#include "engine/ffn/expert_ffn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "kernels/quantize.h"

namespace thermocline::ffn {
namespace {

using kernels::DType;

constexpr int kWidth = 64, kExpertNeurons = 96, kSharedNeurons = 32, kMixed = 8, kMixedUsed = 3,
              kManyTokens = 150;

// [matrices, rows, cols] of one type, in the engine's memory and as floats.
struct MatrixStack {
  int matrices, rows, cols;
  std::vector<float> values, bias;
  std::vector<std::uint8_t> packed;
  DType type;

  MatrixStack(int n, int r, int c, DType t, std::mt19937& random)
      : matrices(n), rows(r), cols(c), type(t) {
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(c)));
    const int all = n * r;
    const std::size_t row_bytes = kernels::RowBytes(type, cols);
    values.resize(static_cast<std::size_t>(all * cols));
    for (float& value : values) value = normal(random);
    for (int i = 0; i < all; ++i) bias.push_back(normal(random));
    std::vector<std::uint8_t> stored(row_bytes * static_cast<std::size_t>(all));
    for (int i = 0; i < all; ++i) {
      std::uint8_t* row = stored.data() + row_bytes * static_cast<std::size_t>(i);
      float* floats = values.data() + static_cast<std::ptrdiff_t>(i) * cols;
      kernels::QuantizeRow(type, floats, cols, row);
      kernels::DequantizeRow(type, row, cols, floats);
    }
    packed.resize(kernels::PackedBytes(type, all, cols));
    for (int i = 0; i < all; i += kernels::kPanelRows) {
      const std::size_t at = row_bytes * static_cast<std::size_t>(i);
      kernels::PackPanel(type, stored.data() + at, std::min(kernels::kPanelRows, all - i), cols,
                         packed.data() + at);
    }
  }
  model::Linear linear(bool with_bias) const {
    return {{type, matrices * rows, cols, packed.data()}, with_bias ? bias.data() : nullptr};
  }
  double Times(int matrix, int row, const std::vector<double>& x, bool with_bias) const {
    const int i = matrix * rows + row;
    double sum = with_bias ? static_cast<double>(bias[static_cast<std::size_t>(i)]) : 0;
    for (int c = 0; c < cols; ++c)
      sum += static_cast<double>(values[static_cast<std::size_t>(i * cols + c)]) *
             x[static_cast<std::size_t>(c)];
    return sum;
  }
};

struct Mixture {
  bool biases, shared_gated;
  std::mt19937 random{5};
  MatrixStack router{1, kMixed, kWidth, DType::kF32, random};
  MatrixStack gate, up, down, shared_gate, shared_up, shared_down;
  std::vector<float> shared_switch;
  model::Architecture architecture = **model::FindArchitecture("qwen3moe");
  model::ModelConfig config;
  model::Weights weights;

  Mixture(DType type, bool with_biases, bool gated_share)
      : biases(with_biases),
        shared_gated(gated_share),
        gate(kMixed, kExpertNeurons, kWidth, type, random),
        up(kMixed, kExpertNeurons, kWidth, type, random),
        down(kMixed, kWidth, kExpertNeurons, type, random),
        shared_gate(1, kSharedNeurons, kWidth, type, random),
        shared_up(1, kSharedNeurons, kWidth, type, random),
        shared_down(1, kWidth, kSharedNeurons, type, random) {
    config.architecture = &architecture;
    config.hidden_size = kWidth;
    config.intermediate_size = kExpertNeurons;
    config.num_hidden_layers = 1;
    config.hidden_act = model::Activation::kSilu;
    config.experts = {.num_experts = kMixed,
                      .num_experts_per_tok = kMixedUsed,
                      .intermediate_size = kExpertNeurons,
                      .shared_intermediate_size = kSharedNeurons,
                      .shared_gated = gated_share,
                      .router = {.normalise = true}};
    std::normal_distribution<float> normal;
    for (int i = 0; i < kWidth; ++i) shared_switch.push_back(normal(random));
    model::ExpertWeights& w = weights.layers.emplace_back().experts;
    w.router = router.linear(false);
    w.gate = gate.linear(biases);
    w.up = up.linear(biases);
    w.down = down.linear(biases);
    w.shared_gate = shared_gate.linear(false);
    w.shared_up = shared_up.linear(false);
    w.shared_down = shared_down.linear(false);
    if (shared_gated) w.shared_switch = shared_switch.data();
  }

  double H(const MatrixStack& g, const MatrixStack& u, int expert, int row,
           const std::vector<double>& x, bool with_bias) const {
    const double z = g.Times(expert, row, x, with_bias);
    return z / (1 + std::exp(-z)) * u.Times(expert, row, x, with_bias);
  }

  // y of one token, for the experts that the engine chose for it.
  std::vector<double> Definition(const std::vector<double>& x,
                                 std::span<const ChosenExpert> chosen) const {
    std::vector<double> y(kWidth);
    const auto add = [&](const MatrixStack& g, const MatrixStack& u, const MatrixStack& d,
                         int expert, double weight, bool with_bias) {
      std::vector<double> h;
      for (int r = 0; r < g.rows; ++r) h.push_back(H(g, u, expert, r, x, with_bias));
      for (int c = 0; c < kWidth; ++c)
        y[static_cast<std::size_t>(c)] += weight * d.Times(expert, c, h, with_bias);
    };
    for (const ChosenExpert& c : chosen)
      add(gate, up, down, c.expert, static_cast<double>(c.weight), biases);
    double score = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      score += static_cast<double>(shared_switch[i]) * x[i];
    add(shared_gate, shared_up, shared_down, 0, shared_gated ? 1 / (1 + std::exp(-score)) : 1,
        false);
    return y;
  }
};

nn::ActivationBuffer MixtureInput(int tokens) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  nn::ActivationBuffer out;
  out.Resize(tokens, kWidth);
  for (float& x : out.x) x = normal(random);
  for (int t = 0; t < tokens; ++t) nn::QuantizeToken(*kernels::CpuOps(), out, t);
  return out;
}

nn::ActivationBuffer OneToken(const nn::ActivationBuffer& all, int token) {
  nn::ActivationBuffer out;
  out.Resize(1, kWidth);
  std::copy_n(all.x.begin() + token * kWidth, kWidth, out.x.begin());
  nn::QuantizeToken(*kernels::CpuOps(), out, 0);
  return out;
}

struct Computed {
  std::vector<float> y;
  std::vector<ChosenExpert> chosen;
};

Computed Compute(const Mixture& mixture, const nn::ActivationBuffer& input, int tokens,
                 int threads) {
  base::WorkerPool pool(threads);
  nn::Multiplier multiplier(*kernels::CpuOps(), pool, 0);
  const FfnContext context{mixture.config,
                           mixture.weights,
                           *kernels::CpuOps(),
                           pool,
                           multiplier,
                           NeuronRanges(kExpertNeurons, nullptr),
                           {}};
  ExpertFfn ffn(context, tokens);
  Computed result{std::vector<float>(static_cast<std::size_t>(tokens * kWidth)), {}};
  EXPECT_TRUE(ffn.Run({0, {input, input.x.data(), tokens}, {}}, result.y.data()).ok());
  result.chosen.assign(ffn.chosen().begin(), ffn.chosen().end());
  return result;
}

TEST(ExpertFfn, ComputesTheDefinition) {
  for (const bool biases : {false, true}) {
    for (const bool switched : {false, true}) {
      const Mixture mixture(DType::kF32, biases, switched);
      const nn::ActivationBuffer input = MixtureInput(kManyTokens);
      const Computed result = Compute(mixture, input, kManyTokens, 2);
      for (int t = 0; t < kManyTokens; ++t) {
        const std::vector<double> x(input.x.begin() + t * kWidth,
                                    input.x.begin() + (t + 1) * kWidth);
        const auto y = mixture.Definition(
            x,
            std::span(result.chosen).subspan(static_cast<std::size_t>(t * kMixedUsed), kMixedUsed));
        for (int c = 0; c < kWidth; ++c)
          ASSERT_NEAR(static_cast<double>(result.y[static_cast<std::size_t>(t * kWidth + c)]),
                      y[static_cast<std::size_t>(c)], 1e-4)
              << "token " << t << " column " << c;
      }
    }
  }
}

// Compares with the definition on the quantized weights; activations are quantized to 8 bits, in
// blocks of 64 columns and again in an expert's neurons.
TEST(ExpertFfn, QuantisedWeightsAreNearTheDefinition) {
  for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ5_1}) {
    const Mixture mixture(type, true, true);
    const nn::ActivationBuffer input = MixtureInput(kManyTokens);
    const Computed result = Compute(mixture, input, kManyTokens, 2);
    double error = 0, norm = 0;
    for (int t = 0; t < kManyTokens; ++t) {
      const std::vector<double> x(input.x.begin() + t * kWidth, input.x.begin() + (t + 1) * kWidth);
      const auto y = mixture.Definition(
          x,
          std::span(result.chosen).subspan(static_cast<std::size_t>(t * kMixedUsed), kMixedUsed));
      for (std::size_t c = 0; c < y.size(); ++c) {
        const double got = static_cast<double>(result.y[static_cast<std::size_t>(t * kWidth) + c]);
        error += (got - y[c]) * (got - y[c]);
        norm += y[c] * y[c];
      }
    }
    EXPECT_LT(std::sqrt(error / norm), 0.02) << kernels::Traits(type).name;
  }
}

TEST(ExpertFfn, ATokenHasTheBitsItHasAlone) {
  for (const DType type : {DType::kF32, DType::kQ8_0, DType::kQ4_0}) {
    const Mixture mixture(type, true, true);
    const nn::ActivationBuffer input = MixtureInput(kManyTokens);
    const Computed together = Compute(mixture, input, kManyTokens, 1);
    for (const int threads : {2, 5})
      EXPECT_EQ(Compute(mixture, input, kManyTokens, threads).y, together.y);
    for (int t = 0; t < kManyTokens; t += 7) {
      const Computed alone = Compute(mixture, OneToken(input, t), 1, 2);
      const std::vector<float> part(together.y.begin() + t * kWidth,
                                    together.y.begin() + (t + 1) * kWidth);
      EXPECT_EQ(alone.y, part) << kernels::Traits(type).name << ", token " << t;
    }
  }
}

// One expert has more tokens than one multiplication takes, and some have one or none.
TEST(ExpertFfn, UnitsOfEverySize) {
  Mixture mixture(DType::kQ8_0, false, false);
  // Expert 1 is always chosen; expert 7 never.
  std::vector<float> bias(kMixed);
  bias[1] = 10;
  bias[7] = -10;
  mixture.weights.layers[0].experts.choice_bias = bias.data();
  const nn::ActivationBuffer input = MixtureInput(kManyTokens);
  const Computed result = Compute(mixture, input, kManyTokens, 2);
  int first = 0, last = 0;
  for (const ChosenExpert& c : result.chosen) {
    first += c.expert == 1 ? 1 : 0;
    last += c.expert == 7 ? 1 : 0;
  }
  EXPECT_EQ(first, kManyTokens);
  EXPECT_EQ(last, 0);
  for (int t = 0; t < kManyTokens; t += 31) {
    const std::vector<float> part(result.y.begin() + t * kWidth,
                                  result.y.begin() + (t + 1) * kWidth);
    EXPECT_EQ(Compute(mixture, OneToken(input, t), 1, 1).y, part);
  }
}

}  // namespace
}  // namespace thermocline::ffn
