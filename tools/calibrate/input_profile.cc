#include "tools/calibrate/input_profile.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"

namespace thermocline::tools {
namespace {

using model::InputKind;

// Norms of the weights that each input multiplies, over all matrices of the kind.
std::vector<float> NormsOf(const model::LayerWeights& layer, InputKind kind) {
  const int inputs = model::InputsOf(layer, kind);
  std::vector<double> squares(inputs);
  const auto matrices = model::MatricesOf(layer, kind);
  std::vector<float> row;
  for (const model::Linear* matrix : matrices) {
    row.resize(inputs);
    for (int r = 0; r < matrix->weight.rows; ++r) {
      kernels::DequantizePackedRow(matrix->weight, r, row.data());
      for (int j = 0; j < inputs; ++j) squares[j] += double{row[j]} * row[j];
    }
  }
  for (int j = 0; matrices.empty() && j < inputs; ++j) {  // neuron-major
    row.resize(layer.down_rows.cols);
    kernels::DequantizeMatrixRow(layer.down_rows, j, row.data());
    for (const float w : row) squares[j] += double{w} * w;
  }
  std::vector<float> norms(inputs);
  std::transform(squares.begin(), squares.end(), norms.begin(),
                 [](double s) { return static_cast<float>(std::sqrt(s)); });
  return norms;
}

}  // namespace

InputProfile::InputProfile(const load::LoadedModel& model, InputSize size)
    : model_(model), sizes_(model.weights->layers.size()) {
  if (size == InputSize::kOwn) return;
  const int kinds = model::kInputKinds;
  model.pool->Run(base::IntSize(sizes_) * kinds, [&](int item, int) {
    const std::size_t layer = item / kinds;
    sizes_[layer][item % kinds].weights =
        NormsOf(model.weights->layers[layer], static_cast<InputKind>(item % kinds));
  });
}

void InputProfile::OnLayer(const ffn::FfnSample& s) {
  Add(sizes_[s.layer][base::Index(InputKind::kDown)], s.neurons, model_.config.intermediate_size,
      s.tokens);
}

void InputProfile::OnProduct(const kernels::PackedMatrix& weight, const float* x, int tokens) {
  for (std::size_t l = 0; l < sizes_.size(); ++l) {
    for (const InputKind kind : {InputKind::kAttention, InputKind::kAttnOutput, InputKind::kFfn}) {
      const auto matrices = model::MatricesOf(model_.weights->layers[l], kind);
      if (!matrices.empty() && matrices.front()->weight.data == weight.data)
        return Add(sizes_[l][base::Index(kind)], x, weight.cols, tokens);
    }
  }
}

void InputProfile::Add(Sizes& to, const float* x, int inputs, int tokens) {
  for (std::ptrdiff_t i = 0; i < std::ptrdiff_t{inputs} * tokens; ++i) {
    const float weight = to.weights.empty() ? 1.0F : to.weights[i % inputs];
    const double size = std::fabs(double{x[i]} * weight);
    const double octave = size > 0 ? std::log2(size) : kLeastOctave;
    const auto bin = static_cast<int>(std::floor((octave - kLeastOctave) * kBinsOfOctave));
    const std::size_t at = std::clamp(bin, 0, kBins - 1);
    to.counts[at] += 1;
    to.squares[at] += size * size;
  }
}

float InputProfile::ThresholdFor(int layer, InputKind kind, double share) const {
  const Sizes& s = Of(layer, kind);
  double all = 0, below = 0;
  for (const double count : s.counts) all += count;
  for (int bin = 0; bin < kBins; ++bin) {
    const double next = below + s.counts[bin];
    if (next >= share * all && next > 0) {
      const double within = s.counts[bin] > 0 ? (share * all - below) / s.counts[bin] : 0;
      const double octave = kLeastOctave + (bin + std::max(0.0, within)) / kBinsOfOctave;
      return share > 0 ? static_cast<float>(std::exp2(octave)) : 0.0F;
    }
    below = next;
  }
  return 0;
}

double InputProfile::SquaresBelow(int layer, InputKind kind, double share) const {
  const Sizes& s = Of(layer, kind);
  double all = 0, squares = 0, below = 0, sum = 0;
  for (int bin = 0; bin < kBins; ++bin) all += s.counts[bin], squares += s.squares[bin];
  for (int bin = 0; bin < kBins; ++bin) {
    const double within =
        s.counts[bin] > 0 ? std::clamp((share * all - below) / s.counts[bin], 0.0, 1.0) : 0;
    sum += within * s.squares[bin];
    below += s.counts[bin];
  }
  return squares > 0 ? sum / squares : 0;
}

}  // namespace thermocline::tools
