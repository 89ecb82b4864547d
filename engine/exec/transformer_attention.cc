// The attention half of exec/transformer.h.
//
// Positions are cut into chunks at fixed places, each chunk's softmax is computed alone, and chunks
// are merged in order: the same bits whoever computes them. A prompt's tokens are the items of the
// parallel loop; a single token's items are its chunks.
#include <algorithm>
#include <array>
#include <cmath>

#include "engine/exec/transformer.h"
#include "engine/nn/offset.h"

namespace thermocline::exec {
namespace {

using kernels::kAttentionChunk;

}  // namespace

void Transformer::Attention(int layer, int tokens) {
  const model::LayerWeights& w = weights_.layers[layer];
  const int kv_heads = config_.num_key_value_heads;
  const std::array products = {nn::Product{&w.q, ws_.q.x.data()}, nn::Product{&w.k, ws_.k.data()},
                               nn::Product{&w.v, ws_.v.data()}};
  Multiply(products, ws_.hidden, tokens);
  ForTokens(tokens, [&](int t) { RotateAndStore(layer, t); });
  if (tokens == 1) {
    AttendOne(layer);
  } else {
    pool_.Run(tokens * kv_heads, [&](int item, int thread) {
      AttendToken(layer, item / kv_heads, item % kv_heads, thread);
    });
  }
  ForTokens(tokens, [&](int t) { Quantize(ws_.attention, t); });
  const std::array output = {nn::Product{&w.attn_output, ws_.attention_out.data()}};
  Multiply(output, ws_.attention, tokens);
}

void Transformer::NormHeads(const model::NormWeights& norm, float* heads, int count) {
  if (norm.weight == nullptr) return;
  for (int h = 0; h < count; ++h) {
    float* head = heads + nn::Offset(h, config_.head_dim);
    Normalize(norm, head, config_.head_dim, head);
  }
}

void Transformer::RotateAndStore(int layer, int token) {
  const model::LayerWeights& w = weights_.layers[layer];
  const int head_dim = config_.head_dim, heads = config_.num_attention_heads,
            kv_heads = config_.num_key_value_heads, position = places_[token].position;
  nn::KvCache& cache = *places_[token].cache;
  float* q = ws_.q.x.data() + nn::Offset(token, heads * head_dim);
  float* k = ws_.k.data() + nn::Offset(token, kv_heads * head_dim);
  NormHeads(w.q_norm, q, heads);
  NormHeads(w.k_norm, k, kv_heads);
  if (config_.rotary()) {
    const std::ptrdiff_t at = nn::Offset(position, config_.rope.dim / 2);
    kernels::RopeParams rope{
        .x = q,
        .heads = heads,
        .head_dim = head_dim,
        .rope_dim = config_.rope.dim,
        .cos = ws_.rope_cos.data() + at,
        .sin = ws_.rope_sin.data() + at,
        .halves = config_.architecture->position == model::Position::kRotaryHalves};
    ops_.rope(rope);
    rope.x = k;
    rope.heads = kv_heads;
    ops_.rope(rope);
  }
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  for (int i = 0; i < heads * head_dim; ++i) q[i] *= scale;
  const nn::KvPool& pool = cache.pool();
  if (pool.type() == kernels::KvType::kQ8_0) Quantize(ws_.q, token);
  std::uint8_t* block = cache.block_at(position);
  for (int head = 0; head < kv_heads; ++head) {
    kernels::StoreKeyAndValue(
        {.type = pool.type(),
         .head_dim = head_dim,
         .slot = position % kernels::kKvBlock,
         .key = k + nn::Offset(head, head_dim),
         .value = ws_.v.data() + nn::Offset(token * kv_heads + head, head_dim),
         .keys = block + pool.keys_offset(layer, head),
         .values = block + pool.values_offset(layer, head)});
  }
}

Transformer::Span Transformer::Window(int layer, int position) const {
  const bool windowed = config_.sliding_window > 0 && layer >= config_.max_window_layers;
  return {windowed ? std::max(0, position + 1 - config_.sliding_window) : 0, position + 1};
}

void Transformer::AttendChunk(int layer, int token, int kv_head, int thread, Span positions,
                              const kernels::AttentionState& state) {
  const nn::KvCache& cache = *places_[token].cache;
  const int head_dim = config_.head_dim;
  const std::ptrdiff_t q =
      nn::Offset(token * config_.num_attention_heads + kv_head * group_, head_dim);
  ops_.attention({.q = ws_.q.view(q, head_dim),
                  .group = group_,
                  .head_dim = head_dim,
                  .type = cache.pool().type(),
                  .blocks = cache.block_data(),
                  .keys_offset = cache.pool().keys_offset(layer, kv_head),
                  .values_offset = cache.pool().values_offset(layer, kv_head),
                  .begin = positions.begin,
                  .end = positions.end,
                  .scores = ws_.scores[thread].data(),
                  .state = state});
}

void Transformer::AttendToken(int layer, int token, int kv_head, int thread) {
  const Span window = Window(layer, places_[token].position);
  const kernels::AttentionState running = ws_.running.state(thread, 0),
                                part = ws_.chunk.state(thread, 0);
  for (int begin = window.begin; begin < window.end;) {
    const int end = std::min(window.end, (begin / kAttentionChunk + 1) * kAttentionChunk);
    const bool first = begin == window.begin;
    AttendChunk(layer, token, kv_head, thread, {begin, end}, first ? running : part);
    if (!first) kernels::MergeAttention(part, group_, config_.head_dim, running);
    begin = end;
  }
  const std::ptrdiff_t at =
      nn::Offset(token * config_.num_attention_heads + kv_head * group_, config_.head_dim);
  kernels::FinishAttention(running, group_, config_.head_dim, ws_.attention.x.data() + at);
}

void Transformer::AttendOne(int layer) {
  const Span window = Window(layer, places_[0].position);
  const int kv_heads = config_.num_key_value_heads, first = window.begin / kAttentionChunk;
  const int chunks = (window.end - 1) / kAttentionChunk - first + 1;
  pool_.Run(kv_heads * chunks, [&](int item, int thread) {
    const int head = item % kv_heads, chunk = item / kv_heads;
    const Span positions{std::max(window.begin, (first + chunk) * kAttentionChunk),
                         std::min(window.end, (first + chunk + 1) * kAttentionChunk)};
    AttendChunk(layer, 0, head, thread, positions, ws_.parts.state(chunk, head * group_));
  });
  for (int head = 0; head < kv_heads; ++head) {
    const kernels::AttentionState all = ws_.parts.state(0, head * group_);
    for (int chunk = 1; chunk < chunks; ++chunk)
      kernels::MergeAttention(ws_.parts.state(chunk, head * group_), group_, config_.head_dim, all);
    kernels::FinishAttention(all, group_, config_.head_dim,
                             ws_.attention.x.data() + nn::Offset(head * group_, config_.head_dim));
  }
}

}  // namespace thermocline::exec
