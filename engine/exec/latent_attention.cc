#include "engine/exec/latent_attention.h"

#include <algorithm>
#include <array>

#include "engine/base/index.h"
#include "engine/nn/normalize.h"
#include "engine/nn/offset.h"

namespace thermocline::exec {

LatentAttention::LatentAttention(const Params& p)
    : config_(p.config),
      latent_(p.config.latent),
      ops_(p.ops),
      pool_(p.pool),
      multiplier_(p.multiplier),
      heads_(p.config.num_attention_heads) {
  const model::LatentConfig& l = latent_;
  const int plain = l.qk_nope_head_dim + l.qk_rope_head_dim;
  kv_.resize(base::Area(p.tokens_max, l.kv_lora_rank + l.qk_rope_head_dim));
  q_a_.Resize(p.tokens_max, l.q_lora_rank);
  plain_.resize(base::Area(p.tokens_max, heads_ * plain));
  nope_.Resize(p.tokens_max * heads_, l.qk_nope_head_dim);
  seen_.Resize(p.tokens_max * heads_, l.kv_lora_rank);
  values_.Resize(p.tokens_max, heads_ * l.v_head_dim);
}

std::size_t LatentAttention::Bytes(const model::ModelConfig& config, int tokens_max) {
  const model::LatentConfig& l = config.latent;
  if (!l.any()) return 0;
  const int heads = config.num_attention_heads, plain = l.qk_nope_head_dim + l.qk_rope_head_dim;
  const std::size_t floats = base::Area(tokens_max, l.kv_lora_rank + l.qk_rope_head_dim) +
                             base::Area(tokens_max, heads * plain);
  return floats * sizeof(float) + nn::ActivationBuffer::Bytes(tokens_max, l.q_lora_rank) +
         nn::ActivationBuffer::Bytes(tokens_max * heads, l.qk_nope_head_dim) +
         nn::ActivationBuffer::Bytes(tokens_max * heads, l.kv_lora_rank) +
         nn::ActivationBuffer::Bytes(tokens_max, heads * l.v_head_dim);
}

void LatentAttention::Project(const model::LayerWeights& layer, const nn::ActivationBuffer& hidden,
                              int tokens, float* q, float* k, float* v) {
  ProjectQueries(layer, hidden, tokens, q);
  const int rank = latent_.kv_lora_rank, rotated = latent_.qk_rope_head_dim;
  for (int t = 0; t < tokens; ++t) {
    const float* kv = kv_.data() + nn::Offset(t, rank + rotated);
    float* key = k + nn::Offset(t, rotated + rank);
    float* value = v + nn::Offset(t, rotated + rank);
    std::copy_n(kv + rank, rotated, key);
    nn::Normalize(ops_, config_, layer.latent.kv_a_norm, kv, rank, key + rotated);
    std::fill_n(value, rotated, 0.0F);
    std::copy_n(key + rotated, rank, value + rotated);
  }
}

void LatentAttention::ProjectQueries(const model::LayerWeights& layer,
                                     const nn::ActivationBuffer& hidden, int tokens, float* q) {
  const model::LatentWeights& w = layer.latent;
  const int n = latent_.qk_nope_head_dim, r = latent_.qk_rope_head_dim, rank = latent_.q_lora_rank,
            head_dim = config_.head_dim;
  const nn::Product first =
      rank > 0 ? nn::Product{&w.q_a, q_a_.x.data()} : nn::Product{&layer.q, plain_.data()};
  const std::array products = {first, nn::Product{&w.kv_a, kv_.data()}};
  multiplier_.Multiply(products, hidden.view(), tokens);
  if (rank > 0) {
    for (int t = 0; t < tokens; ++t) {
      float* x = q_a_.x.data() + nn::Offset(t, rank);
      nn::Normalize(ops_, config_, w.q_a_norm, x, rank, x);
      nn::QuantizeToken(ops_, q_a_, t);
    }
    const std::array second = {nn::Product{&layer.q, plain_.data()}};
    multiplier_.Multiply(second, q_a_.view(), tokens);
  }
  ForHeads(tokens, [&](int head, int t) {
    const float* plain = plain_.data() + nn::Offset(t * heads_ + head, n + r);
    std::copy_n(plain, n, nope_.x.data() + nn::Offset(head * tokens + t, n));
    std::copy_n(plain + n, r, q + nn::Offset(t * heads_ + head, head_dim));
    nn::QuantizeToken(ops_, nope_, head * tokens + t);
  });
  MultiplyHeads(w.k_b.weight, nope_, tokens, q + r, head_dim, heads_ * head_dim);
}

void LatentAttention::Output(const model::LayerWeights& layer, const float* seen, int tokens,
                             float* out) {
  const int r = latent_.qk_rope_head_dim, c = latent_.kv_lora_rank, v = latent_.v_head_dim;
  ForHeads(tokens, [&](int head, int t) {
    std::copy_n(seen + nn::Offset(t * heads_ + head, r + c) + r, c,
                seen_.x.data() + nn::Offset(head * tokens + t, c));
    nn::QuantizeToken(ops_, seen_, head * tokens + t);
  });
  MultiplyHeads(layer.latent.v_b.weight, seen_, tokens, values_.x.data(), v, heads_ * v);
  for (int t = 0; t < tokens; ++t) nn::QuantizeToken(ops_, values_, t);
  const std::array output = {nn::Product{&layer.attn_output, out}};
  multiplier_.Multiply(output, values_.view(), tokens);
}

void LatentAttention::MultiplyHeads(const kernels::PackedMatrix& all,
                                    const nn::ActivationBuffer& input, int tokens, float* out,
                                    int out_head, int out_token) {
  const int rows = all.rows / heads_;
  pool_.Run(heads_, [&](int head, int) {
    const kernels::PackedMatrix weights = model::ExpertWeights::Of(all, head, rows);
    ops_.gemm({.weights = weights,
               .activations = input.view(nn::Offset(head * tokens, input.cols), input.cols),
               .tokens = tokens,
               .out = out + nn::Offset(head, out_head),
               .out_stride = out_token,
               .panel_begin = 0,
               .panel_end = kernels::NumPanels(rows),
               .prefetch_bytes = multiplier_.prefetch_bytes()});
  });
}

}  // namespace thermocline::exec
