#include "engine/gpu/device_attention.h"

#include <algorithm>
#include <cmath>

#include "engine/nn/workspace.h"

namespace thermocline::gpu {

DeviceAttention::DeviceAttention(const Params& p, DeviceArena& arena)
    : model_(p.model), dense_(p.model), kv_(p.kv), context_length_(p.context_length) {
  const model::ModelConfig& c = model_.config();
  const int t = p.tokens_max, q_dim = c.num_attention_heads * c.head_dim,
            kv_dim = c.num_key_value_heads * c.head_dim;
  AddActivations(arena, t, q_dim, &q_);
  AddActivations(arena, t, q_dim, &attended_);
  arena.Add(&k_, Area(t, kv_dim));
  arena.Add(&v_, Area(t, kv_dim));
  const std::size_t per_token =
      kernels::AttentionScratchFloats(1, context_length_, c.num_attention_heads, c.head_dim);
  tokens_at_once_ = static_cast<int>(std::clamp<std::size_t>(
      p.scratch_bytes / sizeof(float) / per_token, 1, static_cast<std::size_t>(t)));
  arena.Add(&scratch_, per_token * tokens_at_once_);
  if (!c.rotary()) return;
  nn::FillRope(c.rope, context_length_, host_cos_, host_sin_);
  arena.Add(&cos_, host_cos_.size(), host_cos_.data());
  arena.Add(&sin_, host_sin_.size(), host_sin_.data());
}

Status DeviceAttention::Put(int layer, const Input& input, float* out, bool accumulate) const {
  const model::LayerWeights& w = model_.layer(layer).dense;
  RETURN_IF_ERROR(dense_.Multiply(w.q, input.hidden, input.tokens, q_.x));
  RETURN_IF_ERROR(dense_.Multiply(w.k, input.hidden, input.tokens, k_));
  RETURN_IF_ERROR(dense_.Multiply(w.v, input.hidden, input.tokens, v_));
  kernels::DeviceActivations q = q_;
  if (kv_.type() != kernels::KvType::kQ8_0) q.q = nullptr;
  RETURN_IF_ERROR(RotateAndStore(layer, input, q));
  RETURN_IF_ERROR(Attend(layer, input, q));
  return dense_.Multiply(w.attn_output, attended_, input.tokens, out, accumulate);
}

Status DeviceAttention::RotateAndStore(int layer, const Input& input,
                                       const kernels::DeviceActivations& q) const {
  const model::ModelConfig& c = model_.config();
  const model::LayerWeights& w = model_.layer(layer).dense;
  return dense_.Check(model_.ops().dense.rotate(
                          {.q = q,
                           .k = k_,
                           .v = v_,
                           .heads = c.num_attention_heads,
                           .kv_heads = c.num_key_value_heads,
                           .head_dim = c.head_dim,
                           .tokens = input.tokens,
                           .q_norm = w.q_norm.weight,
                           .k_norm = w.k_norm.weight,
                           .q_norm_bias = w.q_norm.bias,
                           .k_norm_bias = w.k_norm.bias,
                           .rms = c.architecture->norm == model::Norm::kRms,
                           .eps = static_cast<float>(c.norm_eps),
                           .cos = cos_,
                           .sin = sin_,
                           .rope_dim = c.rope.dim,
                           .halves = c.architecture->position == model::Position::kRotaryHalves,
                           .scale = c.ScoreScale(),
                           .positions = input.positions,
                           .kv = kv_.View(layer, input.tables)},
                          model_.stream().handle()),
                      "rotation");
}

Status DeviceAttention::Attend(int layer, const Input& input,
                               const kernels::DeviceActivations& q) const {
  const model::ModelConfig& c = model_.config();
  const bool windowed = c.WindowOf(layer) > 0;
  for (int first = 0; first < input.tokens; first += tokens_at_once_) {
    RETURN_IF_ERROR(dense_.Check(
        model_.ops().dense.attention({.q = TokensFrom(q, first).view(),
                                      .heads = c.num_attention_heads,
                                      .kv_heads = c.num_key_value_heads,
                                      .head_dim = c.head_dim,
                                      .tokens = std::min(tokens_at_once_, input.tokens - first),
                                      .context = context_length_,
                                      .window = windowed ? c.sliding_window : 0,
                                      .positions = input.positions + first,
                                      .kv = kv_.View(layer, input.tables + first),
                                      .scratch = scratch_,
                                      .out = TokensFrom(attended_, first)},
                                     model_.stream().handle()),
        "attention"));
  }
  return OkStatus();
}

}  // namespace thermocline::gpu
