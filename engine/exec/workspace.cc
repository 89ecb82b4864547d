#include "engine/exec/workspace.h"

#include <cmath>

namespace thermocline::exec {
namespace {

std::size_t Area(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

}  // namespace

void ActivationBuffer::Resize(int tokens, int columns) {
  cols = columns;
  const int blocks = columns / kernels::kActivationBlock;
  x.resize(Area(tokens, columns));
  q.resize(Area(tokens, columns));
  scale.resize(Area(tokens, blocks));
  sum.resize(Area(tokens, blocks));
}

Workspace::Workspace(const Params& p) : tokens_max(p.tokens_max), logits_max(p.logits_max) {
  const model::ModelConfig& c = p.config;
  const int max_tokens = p.tokens_max, context_length = p.context_length;
  const int d = c.hidden_size, q_dim = c.num_attention_heads * c.head_dim,
            kv_dim = c.num_key_value_heads * c.head_dim;
  residual.resize(Area(max_tokens, d));
  hidden.Resize(max_tokens, d);
  q.resize(Area(max_tokens, q_dim));
  k.resize(Area(max_tokens, kv_dim));
  v.resize(Area(max_tokens, kv_dim));
  attention.Resize(max_tokens, q_dim);
  ffn.Resize(max_tokens, c.intermediate_size);
  up.resize(Area(max_tokens, c.intermediate_size));
  block_out.resize(Area(max_tokens, d));
  head.Resize(2, d);
  head_out.resize(Area(2, c.vocab_size));
  logits.resize(Area(p.logits_max, c.vocab_size));
  scores.assign(static_cast<std::size_t>(p.threads),
                std::vector<float>(static_cast<std::size_t>((context_length + 15) / 16 * 16)));
  const int half = c.rope_dim / 2;
  rope_cos.resize(Area(context_length, half));
  rope_sin.resize(Area(context_length, half));
  for (int i = 0; i < half; ++i) {
    const double frequency = std::pow(c.rope_theta, -2.0 * i / c.rope_dim);
    for (int position = 0; position < context_length; ++position) {
      rope_cos[Area(position, half) + static_cast<std::size_t>(i)] =
          static_cast<float>(std::cos(position * frequency));
      rope_sin[Area(position, half) + static_cast<std::size_t>(i)] =
          static_cast<float>(std::sin(position * frequency));
    }
  }
}

}  // namespace thermocline::exec
