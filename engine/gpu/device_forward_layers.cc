// What exec/device_forward.h puts on the stream: Transformer's block, op for op.
#include <algorithm>
#include <cmath>

#include "engine/gpu/device_forward.h"
#include "engine/nn/offset.h"

namespace thermocline::gpu {

Status DeviceForward::Norm(const model::NormWeights& norm, const float* x, int tokens,
                           const kernels::DeviceActivations& out) {
  return Check(ops_.dense.norm({.x = x,
                                .weight = norm.weight,
                                .bias = norm.bias,
                                .rms = config_.architecture->norm == model::Norm::kRms,
                                .n = config_.hidden_size,
                                .tokens = tokens,
                                .eps = static_cast<float>(config_.norm_eps),
                                .out = out},
                               model_.stream().handle()),
               "a norm");
}

Status DeviceForward::Multiply(const model::Linear& matrix, const kernels::DeviceActivations& x,
                               int tokens, float* out, bool accumulate) {
  const kernels::PackedMatrix& weight = matrix.weight;
  return Check(ops_.dense.gemm({.gemm = {.weights = weight,
                                         .activations = x.view(),
                                         .tokens = tokens,
                                         .out = out,
                                         .out_stride = weight.rows,
                                         .panel_begin = 0,
                                         .panel_end = kernels::NumPanels(weight.rows)},
                                .bias = matrix.bias,
                                .accumulate = accumulate},
                               model_.stream().handle()),
               "a product");
}

Status DeviceForward::Add(float* x, const float* y, int tokens) {
  return Check(
      ops_.dense.add({.x = x, .y = y, .n = tokens * config_.hidden_size}, model_.stream().handle()),
      "an addition");
}

Status DeviceForward::Layer(int layer, int tokens) {
  const model::LayerWeights& w = model_.layer(layer).dense;
  auto* residual = reinterpret_cast<float*>(step_ + residual_at_);
  const bool own_norm = w.attn_second_norm.weight != nullptr;
  RETURN_IF_ERROR(Norm(own_norm ? w.attn_second_norm : w.attn_norm, residual, tokens, hidden_));
  if (!config_.architecture->parallel_block) {
    RETURN_IF_ERROR(Attention(layer, tokens, residual, true));
    RETURN_IF_ERROR(Norm(w.ffn_norm, residual, tokens, hidden_));
    return FeedForward(layer, tokens, {residual, true});
  }
  RETURN_IF_ERROR(Attention(layer, tokens, attention_out_, false));
  if (own_norm) RETURN_IF_ERROR(Norm(w.attn_norm, residual, tokens, hidden_));
  RETURN_IF_ERROR(FeedForward(layer, tokens, {ffn_out_, false}));
  RETURN_IF_ERROR(Add(residual, attention_out_, tokens));
  return Add(residual, ffn_out_, tokens);
}

Status DeviceForward::Attention(int layer, int tokens, float* out, bool accumulate) {
  const model::ModelConfig& c = config_;
  const model::LayerWeights& w = model_.layer(layer).dense;
  const kernels::Stream stream = model_.stream().handle();
  const auto* positions = reinterpret_cast<const std::int32_t*>(step_);
  RETURN_IF_ERROR(Multiply(w.q, hidden_, tokens, q_.x));
  RETURN_IF_ERROR(Multiply(w.k, hidden_, tokens, k_));
  RETURN_IF_ERROR(Multiply(w.v, hidden_, tokens, v_));
  const std::size_t key_bytes = kernels::KeyBlockBytes(kv_type_, c.head_dim),
                    head_bytes = key_bytes + kernels::ValueBlockBytes(kv_type_, c.head_dim),
                    at = static_cast<std::size_t>(layer * c.num_key_value_heads) * head_bytes;
  const kernels::DeviceKv kv{.type = kv_type_,
                             .blocks = reinterpret_cast<std::uint8_t* const*>(step_ + table_at_),
                             .keys_offset = at,
                             .values_offset = at + key_bytes,
                             .head_stride = head_bytes};
  kernels::DeviceActivations q = q_;
  if (kv_type_ != kernels::KvType::kQ8_0) q.q = nullptr;
  RETURN_IF_ERROR(
      Check(ops_.dense.rotate({.q = q,
                               .k = k_,
                               .v = v_,
                               .heads = c.num_attention_heads,
                               .kv_heads = c.num_key_value_heads,
                               .head_dim = c.head_dim,
                               .tokens = tokens,
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
                               .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim)),
                               .position = positions,
                               .kv = kv},
                              stream),
            "rotation"));
  const bool windowed = c.sliding_window > 0 && layer >= c.max_window_layers;
  for (int first = 0; first < tokens; first += attention_tokens_) {
    RETURN_IF_ERROR(
        Check(ops_.dense.attention({.q = TokensFrom(q, first).view(),
                                    .heads = c.num_attention_heads,
                                    .kv_heads = c.num_key_value_heads,
                                    .head_dim = c.head_dim,
                                    .tokens = std::min(attention_tokens_, tokens - first),
                                    .context = context_length_,
                                    .window = windowed ? c.sliding_window : 0,
                                    .position = positions + first,
                                    .kv = kv,
                                    .scratch = attention_scratch_,
                                    .out = TokensFrom(attention_, first)},
                                   stream),
              "attention"));
  }
  return Multiply(w.attn_output, attention_, tokens, out, accumulate);
}

Status DeviceForward::FeedForward(int layer, int tokens, const DeviceFfn::Output& out) {
  if (model_.layer(layer).shared) return FeedForwardShared(layer, tokens, out);
  auto* residual = reinterpret_cast<float*>(step_ + residual_at_);
  return ffn_.Run(layer, modes_[static_cast<std::size_t>(layer)], {hidden_, residual, tokens}, out);
}

Status DeviceForward::End(int tokens, int logits) {
  device::DeviceStream& stream = model_.stream();
  if (tokens == 1) RETURN_IF_ERROR(ffn_.ReadCounts(0, home_layers()));
  if (!head()) {
    return stream.CopyToHost(pinned_result_.host<float>(), step_ + residual_at_,
                             static_cast<std::size_t>(tokens) *
                                 static_cast<std::size_t>(config_.hidden_size) * sizeof(float));
  }
  if (logits == 0) return OkStatus();
  RETURN_IF_ERROR(Head(tokens - logits, logits));
  return stream.CopyToHost(pinned_result_.host<float>(), logits_,
                           static_cast<std::size_t>(logits) *
                               static_cast<std::size_t>(config_.vocab_size) * sizeof(float));
}

// As Transformer::Head: a quantised head multiplies what rounding lost, too.
Status DeviceForward::Head(int first, int count) {
  const kernels::Stream stream = model_.stream().handle();
  const model::Linear& output = model_.output();
  const auto* residual = reinterpret_cast<const float*>(step_ + residual_at_);
  RETURN_IF_ERROR(Norm(model_.output_norm(), residual + nn::Offset(first, config_.hidden_size),
                       count, head_x_));
  if (!kernels::Traits(output.weight.type).quantized)
    return Multiply(output, head_x_, count, logits_);
  RETURN_IF_ERROR(
      Check(ops_.dense.quantize({.x = head_x_, .tokens = count, .with_rest = true}, stream),
            "rounding the head's input"));
  return Check(ops_.dense.gemm({.gemm = {.weights = output.weight,
                                         .activations = head_x_.view(),
                                         .tokens = 2 * count,
                                         .out = logits_,
                                         .out_stride = output.weight.rows,
                                         .panel_begin = 0,
                                         .panel_end = kernels::NumPanels(output.weight.rows)},
                                .bias = output.bias,
                                .fold = true},
                               stream),
               "the head");
}

}  // namespace thermocline::gpu
