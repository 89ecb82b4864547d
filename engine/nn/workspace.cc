#include "engine/nn/workspace.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"

namespace thermocline::nn {

namespace {

// Fills cos and sin, both [rope.dim / 2], for one position.
void FillPosition(const model::RopeFrequencies& rope, int position, float* cos, float* sin) {
  for (std::size_t i = 0; i < rope.frequencies.size(); ++i) {
    const double angle = position * rope.frequencies[i];
    cos[i] = static_cast<float>(std::cos(angle) * rope.magnitude);
    sin[i] = static_cast<float>(std::sin(angle) * rope.magnitude);
  }
}

}  // namespace

void RopeTable::Reserve(const model::RopeConfig& rope, int context_length) {
  rope_ = model::ComputeRopeFrequencies(rope, context_length);
  const std::size_t size = base::Area(context_length, base::IntSize(rope_.frequencies));
  cos_ = std::make_unique_for_overwrite<float[]>(size);
  sin_ = std::make_unique_for_overwrite<float[]>(size);
}

std::size_t RopeTable::Bytes(const model::RopeConfig& rope, int context_length) {
  return base::Area(context_length, rope.dim / 2) * 2 * sizeof(float);
}

void RopeTable::Cover(int positions) {
  if (rope_.frequencies.empty()) return;
  for (; covered_ < positions; ++covered_)
    FillPosition(rope_, covered_, cos_.get() + Offset(covered_), sin_.get() + Offset(covered_));
}

void FillRope(const model::RopeConfig& rope, int context_length, std::vector<float>& cos,
              std::vector<float>& sin) {
  const model::RopeFrequencies frequencies = model::ComputeRopeFrequencies(rope, context_length);
  const auto half = frequencies.frequencies.size();
  cos.resize(context_length * half);
  sin.resize(cos.size());
  for (int position = 0; position < context_length; ++position)
    FillPosition(frequencies, position, cos.data() + position * half, sin.data() + position * half);
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
  pair_sum.resize(2 * scale.size());
}

// Per element a float and its 8 bits, and per block six numbers.
std::size_t ActivationBuffer::Bytes(int tokens, int columns) {
  return base::Area(tokens, columns) * 5 +
         base::Area(tokens, columns / kernels::kActivationBlock) * 24;
}

kernels::Activations ActivationBuffer::view(std::ptrdiff_t at, int columns) const {
  const std::ptrdiff_t block = at / kernels::kActivationBlock;
  // A float-only buffer has no other arrays.
  const auto from = [](const auto& numbers, std::ptrdiff_t offset) {
    return numbers.empty() ? nullptr : numbers.data() + offset;
  };
  return {.x = from(x, at),
          .q = from(q, at),
          .scale = from(scale, block),
          .scaled_sum = from(scaled_sum, block),
          .sum = from(sum, block),
          .half_sum = from(half_sum, block),
          .pair_sum = from(pair_sum, 2 * block),
          .cols = columns};
}

void AttentionParts::Resize(int parts, int num_heads, int dim) {
  heads = num_heads;
  head_dim = dim;
  max.resize(base::Area(parts, heads));
  total.resize(max.size());
  out.resize(max.size() * dim);
}

std::size_t AttentionParts::Bytes(int parts, int num_heads, int dim) {
  return base::Area(parts, num_heads) * (dim + 2) * sizeof(float);
}

kernels::AttentionState AttentionParts::state(int part, int head) {
  const std::ptrdiff_t at = base::Area(part, heads) + head;
  return {max.data() + at, total.data() + at, out.data() + at * head_dim};
}

template <typename Array, typename Buffer>
void Workspace::ForEach(const Params& p, const Array& array, const Buffer& buffer) {
  const model::ModelConfig& c = p.config;
  const int tokens = p.tokens_max, d = c.hidden_size;
  const model::HeadShape most = c.LargestHeads();
  int q_dim = 0, kv_dim = 0, group = 1;
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    const model::HeadShape shape = c.HeadsOf(layer);
    q_dim = std::max(q_dim, shape.q());
    kv_dim = std::max(kv_dim, shape.kv());
    group = std::max(group, shape.group());
  }
  for (std::vector<float>* of : {&residual, &attention_out, &ffn_out})
    array(*of, base::Area(tokens, d));
  for (std::vector<float>* of : {&k, &v}) array(*of, base::Area(tokens, kv_dim));
  buffer(hidden, tokens, d);
  buffer(q, tokens, q_dim);
  buffer(attention, tokens, q_dim);
  buffer(head, 2 * p.logits_max, d);
  array(logits, base::Area(2 * p.logits_max, c.vocab_size));
  buffer(parts, p.context_length / kernels::kAttentionChunk + 1, most.heads, most.dim);
  const int rows = std::max(group, kernels::kAttentionRows);
  buffer(running, p.threads, rows, most.dim);
  buffer(chunk, p.threads, rows, most.dim);
  scores.resize(p.threads);
  for (std::vector<float>& of : scores) array(of, base::Area(rows, kernels::kKvBlock));
  tile_q.resize(p.threads);
  for (ActivationBuffer& of : tile_q) buffer(of, rows, most.dim);
}

Workspace::Workspace(const Params& p)
    : tokens_max(p.tokens_max), context_length(p.context_length), logits_max(p.logits_max) {
  ForEach(
      p, [](auto& array, std::size_t elements) { array.resize(elements); },
      [](auto& buffer, auto... sizes) { buffer.Resize(sizes...); });
  if (p.config.rotary()) rope.Reserve(p.config.rope, p.context_length);
  if (p.config.HasWindowRope()) window_rope.Reserve(p.config.window_rope, p.context_length);
}

std::size_t Workspace::Bytes(const Params& p) {
  std::size_t bytes = 0;
  Workspace none;
  none.ForEach(
      p, [&](auto& array, std::size_t elements) { bytes += elements * sizeof(array[0]); },
      [&](auto& buffer, auto... sizes) { bytes += buffer.Bytes(sizes...); });
  const model::ModelConfig& c = p.config;
  if (c.rotary()) bytes += RopeTable::Bytes(c.rope, p.context_length);
  if (c.HasWindowRope()) bytes += RopeTable::Bytes(c.window_rope, p.context_length);
  return bytes;
}

}  // namespace thermocline::nn
