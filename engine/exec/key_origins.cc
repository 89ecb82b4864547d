#include "engine/exec/key_origins.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/nn/offset.h"

namespace thermocline::exec {
namespace {

constexpr double kTurnMax = 0.5;  // radians in a chunk

bool HasOrigin(const model::ModelConfig& config, const model::LayerWeights& layer) {
  return layer.k.bias != nullptr && layer.k_norm.weight == nullptr && config.attention_cap == 0 &&
         !config.latent.any();
}

bool IsRotatedByHalves(const model::ModelConfig& config) {
  return config.architecture->position == model::Position::kRotaryHalves;
}

// Sets the dimensions of one head that turn fast to 0. `frequencies`: radians per position.
void KeepSlowPairs(const std::vector<double>& frequencies, bool halves, float* head) {
  const int pairs = base::IntSize(frequencies);
  for (int i = 0; i < pairs; ++i) {
    if (frequencies[i] * kernels::kAttentionChunk <= kTurnMax) continue;
    head[halves ? i : 2 * i] = head[halves ? i + pairs : 2 * i + 1] = 0;
  }
}

}  // namespace

KeyOrigins::KeyOrigins(const model::ModelConfig& config, const model::Weights& weights,
                       const kernels::OpTable& ops, int context_length)
    : config_(config), ops_(ops), biases_(weights.layers.size()) {
  for (int layer = 0; layer < base::IntSize(biases_); ++layer) {
    const model::LayerWeights& w = weights.layers[layer];
    if (!HasOrigin(config, w)) continue;
    const model::HeadShape heads = config.HeadsOf(layer);
    biases_[layer].assign(w.k.bias, w.k.bias + heads.kv());
    if (!config.Rotates(layer)) continue;
    const auto turns = model::ComputeRopeFrequencies(config.RopeOf(layer), context_length);
    for (int head = 0; head < heads.kv_heads; ++head)
      KeepSlowPairs(turns.frequencies, IsRotatedByHalves(config),
                    biases_[layer].data() + nn::Offset(head, heads.dim));
  }
}

std::size_t KeyOrigins::Bytes(const model::ModelConfig& config) {
  std::size_t bytes = 0;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer)
    bytes += config.HeadsOf(layer).kv() * sizeof(float);
  return bytes;
}

void KeyOrigins::Write(int layer, int kv_head, int chunk, const nn::RopeTable& rope,
                       float* out) const {
  const int dim = config_.HeadsOf(layer).dim, begin = chunk * kernels::kAttentionChunk;
  std::copy_n(biases_[layer].data() + nn::Offset(kv_head, dim), dim, out);
  if (!config_.Rotates(layer)) return;
  ops_.rope({.x = out,
             .heads = 1,
             .head_dim = dim,
             .rope_dim = config_.RopeOf(layer).dim,
             .cos = rope.cos(begin),
             .sin = rope.sin(begin),
             .halves = IsRotatedByHalves(config_)});
}

}  // namespace thermocline::exec
