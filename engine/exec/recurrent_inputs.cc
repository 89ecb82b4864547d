#include "engine/exec/recurrent_inputs.h"

#include <cmath>

#include "engine/nn/gate_functions.h"
#include "engine/nn/offset.h"

namespace thermocline::exec {
namespace {

constexpr float kL2Epsilon = 1e-6F;  // on the sum of squares. Source: transformers' l2norm.

}  // namespace

RecurrentInputs::RecurrentInputs(const model::ModelConfig& config, const model::Weights& weights,
                                 const kernels::OpTable& ops)
    : r_(config.recurrent),
      weights_(weights),
      ops_(ops),
      channels_(config.recurrent.channels(config.hidden_size)) {
  if (r_.kind == model::Mixer::kDeltaNet) {
    const auto dim = static_cast<float>(r_.key_dim);
    key_scale_.assign(r_.key_dim, 1 / std::sqrt(dim));
    query_scale_.assign(r_.key_dim, 1 / dim);
  }
  taps_.resize(config.num_hidden_layers);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!r_.has_state(layer) || weights.images[layer].stage >= 0) continue;
    taps_[layer].resize(taps_size());
    Transpose(layer, taps_[layer].data());
  }
}

std::size_t RecurrentInputs::Bytes(const model::ModelConfig& config) {
  const model::RecurrentConfig& r = config.recurrent;
  return sizeof(float) * r.layers() * r.taps * r.channels(config.hidden_size);
}

void RecurrentInputs::Transpose(int layer, float* taps) const {
  const float* stored = weights_.layers[layer].recurrent.conv;
  for (int c = 0; c < channels_; ++c)
    for (int t = 0; t < r_.taps; ++t) taps[nn::Offset(t, channels_) + c] = stored[c * r_.taps + t];
}

const float* RecurrentInputs::TapsOf(int layer, std::vector<float>& scratch) const {
  if (!taps_[layer].empty()) return taps_[layer].data();
  Transpose(layer, scratch.data());
  return scratch.data();
}

void RecurrentInputs::Convolve(int layer, const float* taps, std::span<const float* const> rows,
                               float* out) const {
  kernels::ShortConvParams conv{.weight = taps,
                                .bias = weights_.layers[layer].recurrent.conv_bias,
                                .taps = r_.taps,
                                .n = channels_,
                                .out = out};
  for (int t = 0; t < r_.taps; ++t) conv.rows[t] = rows[t];
  ops_.short_conv(conv);
  if (r_.kind == model::Mixer::kShortConv) return;
  ops_.gated({.gate = out, .n = channels_, .out = out});
  if (r_.kind != model::Mixer::kDeltaNet) return;
  const float eps = kL2Epsilon / static_cast<float>(r_.key_dim);
  for (int head = 0; head < 2 * r_.key_heads; ++head) {
    float* x = out + nn::Offset(head, r_.key_dim);
    const auto& scale = head < r_.key_heads ? query_scale_ : key_scale_;
    ops_.rms_norm({.x = x, .weight = scale.data(), .n = r_.key_dim, .eps = eps, .out = x});
  }
}

void RecurrentInputs::Gates(int layer, const float* alpha, const float* beta, float* gates) const {
  const model::RecurrentWeights& w = weights_.layers[layer].recurrent;
  const int group = r_.heads / r_.key_heads;
  for (int h = 0; h < r_.heads; ++h) {
    // Stored by key head: the betas of its heads, then their alphas.
    const int packed = h / group * 2 * group + h % group;
    const float a =
        beta != nullptr || r_.kind == model::Mixer::kMamba2 ? alpha[h] : alpha[packed + group];
    const float step = nn::Softplus(a + w.step_bias[h]);
    gates[h] = std::exp(w.decay[h] * step);
    gates[r_.heads + h] = r_.kind == model::Mixer::kMamba2
                              ? step
                              : nn::Sigmoid(beta != nullptr ? beta[h] : alpha[packed]);
  }
}

const float* RecurrentInputs::Values(const float* columns, const float* gates,
                                     float* values) const {
  if (r_.kind != model::Mixer::kMamba2) return columns + nn::Offset(2 * r_.key_heads, r_.key_dim);
  for (int h = 0; h < r_.heads; ++h) {
    const float step = gates[r_.heads + h];
    const std::ptrdiff_t at = nn::Offset(h, r_.value_dim);
    for (int i = 0; i < r_.value_dim; ++i) values[at + i] = columns[at + i] * step;
  }
  return values;
}

// Delta net: q, k, values; Mamba-2: x, B (the keys), C (the queries).
const float* RecurrentInputs::Key(const float* columns, int head) const {
  const std::ptrdiff_t at = nn::Offset(r_.key_head_of(head), r_.key_dim);
  return columns + at +
         (r_.kind == model::Mixer::kMamba2 ? r_.inner() : nn::Offset(r_.key_heads, r_.key_dim));
}

const float* RecurrentInputs::Query(const float* columns, int head) const {
  const std::ptrdiff_t at = nn::Offset(r_.key_head_of(head), r_.key_dim);
  return columns + at +
         (r_.kind == model::Mixer::kMamba2 ? r_.inner() + nn::Offset(r_.key_heads, r_.key_dim) : 0);
}

}  // namespace thermocline::exec
