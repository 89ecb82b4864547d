#include "engine/nn/workspace.h"

#include <cmath>

#include "engine/base/index.h"

namespace thermocline::nn {
namespace {}  // namespace

void FillRope(const model::RopeConfig& rope, int context_length, std::vector<float>& cos,
              std::vector<float>& sin) {
  const model::RopeFrequencies f = model::ComputeRopeFrequencies(rope);
  const auto half = f.frequencies.size();
  cos.resize(static_cast<std::size_t>(context_length) * half);
  sin.resize(cos.size());
  for (std::size_t position = 0; position < static_cast<std::size_t>(context_length); ++position) {
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * f.frequencies[i];
      cos[position * half + i] = static_cast<float>(std::cos(angle) * f.magnitude);
      sin[position * half + i] = static_cast<float>(std::sin(angle) * f.magnitude);
    }
  }
}

void ActivationBuffer::Resize(int tokens, int columns) {
  cols = columns;
  const int blocks = columns / kernels::kActivationBlock;
  x.resize(base::Area(tokens, columns));
  q.resize(base::Area(tokens, columns));
  scale.resize(base::Area(tokens, blocks));
  scaled_sum.resize(scale.size());
  sum.resize(scale.size());
  half_sum.resize(scale.size());
}

kernels::Activations ActivationBuffer::view(std::ptrdiff_t at, int columns) const {
  const std::ptrdiff_t block = at / kernels::kActivationBlock;
  return {.x = x.data() + at,
          .q = q.data() + at,
          .scale = scale.data() + block,
          .scaled_sum = scaled_sum.data() + block,
          .sum = sum.data() + block,
          .half_sum = half_sum.data() + block,
          .cols = columns};
}

void AttentionParts::Resize(int parts, int num_heads, int dim) {
  heads = num_heads;
  head_dim = dim;
  max.resize(base::Area(parts, heads));
  total.resize(max.size());
  out.resize(max.size() * static_cast<std::size_t>(dim));
}

kernels::AttentionState AttentionParts::state(int part, int head) {
  const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(part) * heads + head;
  return {max.data() + at, total.data() + at, out.data() + at * head_dim};
}

Workspace::Workspace(const Params& p) : tokens_max(p.tokens_max), logits_max(p.logits_max) {
  const model::ModelConfig& c = p.config;
  const int max_tokens = p.tokens_max, heads = c.num_attention_heads;
  const int d = c.hidden_size, q_dim = heads * c.head_dim,
            kv_dim = c.num_key_value_heads * c.head_dim;
  residual.resize(base::Area(max_tokens, d));
  hidden.Resize(max_tokens, d);
  q.Resize(max_tokens, q_dim);
  k.resize(base::Area(max_tokens, kv_dim));
  v.resize(base::Area(max_tokens, kv_dim));
  attention.Resize(max_tokens, q_dim);
  attention_out.resize(base::Area(max_tokens, d));
  ffn_out.resize(base::Area(max_tokens, d));
  head.Resize(2 * logits_max, d);
  logits.resize(base::Area(2 * logits_max, c.vocab_size));
  scores.assign(static_cast<std::size_t>(p.threads),
                std::vector<float>(base::Area(heads, kernels::kKvBlock)));
  parts.Resize(p.context_length / kernels::kAttentionChunk + 1, heads, c.head_dim);
  running.Resize(p.threads, heads, c.head_dim);
  chunk.Resize(p.threads, heads, c.head_dim);
  if (c.rotary()) FillRope(c.rope, p.context_length, rope_cos, rope_sin);
}

}  // namespace thermocline::nn
