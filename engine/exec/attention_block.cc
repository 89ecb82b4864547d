#include "engine/exec/attention_block.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/index.h"
#include "engine/nn/for_tokens.h"
#include "engine/nn/hadamard.h"
#include "engine/nn/normalize.h"
#include "engine/nn/offset.h"

namespace thermocline::exec {
namespace {

using kernels::kAttentionChunk;

}  // namespace

AttentionBlock::AttentionBlock(const Params& p)
    : config_(p.config),
      weights_(p.weights),
      ops_(p.ops),
      pool_(p.pool),
      multiplier_(p.multiplier),
      ws_(p.workspace),
      inputs_(p.inputs),
      step_(p.step),
      group_(p.config.num_attention_heads / p.config.num_key_value_heads) {
  if (config_.latent.any())
    latent_.emplace(LatentAttention::Params{.config = config_,
                                            .ops = ops_,
                                            .pool = pool_,
                                            .multiplier = multiplier_,
                                            .tokens_max = ws_.tokens_max});
  if (config_.architecture->value_norm) ones_.assign(config_.head_dim, 1.0F);
  if (config_.architecture->attention_gate)
    gated_q_.resize(base::Area(ws_.tokens_max, 2 * QuerySize(config_)));
}

void AttentionBlock::Run(int layer, bool by_inputs) {
  const int tokens = step_.count();
  ProjectInput(layer, by_inputs);
  nn::ForTokens(pool_, tokens, [&](int t) { RotateAndStore(layer, t); });
  if (tokens == 1) {
    AttendOne(layer);
  } else {
    AttendTokens(layer);
  }
  if (SpreadsHeads()) {
    nn::ForTokens(pool_, tokens, [&](int t) {
      SpreadHeads(ws_.attention.x.data() + nn::Offset(t, ws_.attention.cols),
                  config_.num_attention_heads);
    });
  }
  ProjectOutput(layer, by_inputs);
}

void AttentionBlock::ProjectInput(int index, bool by_inputs) {
  const model::LayerWeights& layer = weights_.layers[index];
  const int tokens = step_.count();
  if (by_inputs)
    return inputs_->Project(ws_.hidden.x.data(), tokens, ws_.q.x.data(), ws_.k.data(),
                            ws_.v.data());
  if (latent_.has_value())
    return latent_->Project(layer, ws_.hidden, tokens, ws_.q.x.data(), ws_.k.data(), ws_.v.data());
  const bool gated = config_.architecture->attention_gate;
  const std::array products = {nn::Product{&layer.q, gated ? gated_q_.data() : ws_.q.x.data()},
                               nn::Product{&layer.k, ws_.k.data()},
                               nn::Product{&layer.v, ws_.v.data()}};
  const std::size_t count = layer.k.weight.rows > 0 ? products.size() : 1;
  multiplier_.Multiply(std::span(products).first(count), ws_.hidden.view(), tokens, false);
  if (gated) nn::ForTokens(pool_, tokens, [&](int t) { SplitGates(t); });
}

void AttentionBlock::SplitGates(int token) {
  const int dim = config_.head_dim, heads = config_.num_attention_heads;
  for (int h = 0; h < heads; ++h)
    std::copy_n(gated_q_.data() + nn::Offset(token * heads + h, 2 * dim), dim,
                ws_.q.x.data() + nn::Offset(token * heads + h, dim));
}

void AttentionBlock::ApplyGates(int token, float* attention) const {
  const int dim = config_.head_dim, heads = config_.num_attention_heads;
  for (int h = 0; h < heads; ++h) {
    const float* gate = gated_q_.data() + nn::Offset(token * heads + h, 2 * dim) + dim;
    float* head = attention + nn::Offset(h, dim);
    for (int i = 0; i < dim; ++i) head[i] /= 1 + std::exp(-gate[i]);
  }
}

void AttentionBlock::ProjectOutput(int index, bool by_inputs) {
  const model::LayerWeights& layer = weights_.layers[index];
  const int tokens = step_.count();
  if (by_inputs) return inputs_->Output(ws_.attention.x.data(), tokens, ws_.attention_out.data());
  if (latent_.has_value())
    return latent_->Output(layer, ws_.attention.x.data(), tokens, ws_.attention_out.data());
  nn::ForTokens(pool_, tokens, [&](int t) {
    float* row = ws_.attention.x.data() + nn::Offset(t, ws_.attention.cols);
    if (config_.architecture->attention_gate) ApplyGates(t, row);
    if (layer.attn_sub_norm.weight != nullptr)
      nn::Normalize(ops_, config_, layer.attn_sub_norm, row, ws_.attention.cols, row);
    nn::QuantizeToken(ops_, ws_.attention, t);
  });
  const std::array output = {nn::Product{&layer.attn_output, ws_.attention_out.data()}};
  multiplier_.Multiply(output, ws_.attention.view(), tokens, false);
}

void AttentionBlock::NormHeads(const model::NormWeights& norm, float* heads, int count) {
  if (norm.weight == nullptr) return;
  for (int h = 0; h < count; ++h) {
    float* head = heads + nn::Offset(h, config_.head_dim);
    nn::Normalize(ops_, config_, norm, head, config_.head_dim, head);
  }
}

void AttentionBlock::NormQueryAndKey(const model::LayerWeights& w, float* q, float* k) {
  const int heads = config_.num_attention_heads, kv_heads = config_.num_key_value_heads;
  if (config_.architecture->wide_norm) {
    nn::Normalize(ops_, config_, w.q_norm, q, heads * config_.head_dim, q);
    if (k != nullptr) nn::Normalize(ops_, config_, w.k_norm, k, kv_heads * config_.head_dim, k);
  } else {
    NormHeads(w.q_norm, q, heads);
    if (k != nullptr) NormHeads(w.k_norm, k, kv_heads);
  }
}

void AttentionBlock::Rotate(int layer, int position, float* q, float* k) {
  const model::RopeConfig& of = config_.RopeOf(layer);
  const nn::RopeTable& table = &of == &config_.window_rope ? ws_.window_rope : ws_.rope;
  kernels::RopeParams rope{
      .x = q,
      .heads = config_.num_attention_heads,
      .head_dim = config_.head_dim,
      .rope_dim = of.dim,
      .cos = table.cos(position),
      .sin = table.sin(position),
      .halves = config_.architecture->position == model::Position::kRotaryHalves};
  ops_.rope(rope);
  if (k == nullptr) return;
  rope.x = k;
  rope.heads = config_.num_key_value_heads;
  ops_.rope(rope);
}

float AttentionBlock::QueryScale(int position) const {
  const float scale = config_.ScoreScale();
  if (config_.temperature_beta == 0) return scale;
  const int periods = position / config_.temperature_period;
  return scale * static_cast<float>(1 + config_.temperature_beta * std::log1p(periods));
}

void AttentionBlock::RotateAndStore(int layer, int token) {
  const model::LayerWeights& w = weights_.layers[layer];
  const int head_dim = config_.head_dim, heads = config_.num_attention_heads,
            position = step_.place(token).position;
  const std::ptrdiff_t at = nn::Offset(token, config_.num_key_value_heads * head_dim);
  const bool owns = config_.OwnsKv(layer);
  float* q = ws_.q.x.data() + nn::Offset(token, heads * head_dim);
  float* k = owns ? ws_.k.data() + at : nullptr;
  const bool norm_last = config_.architecture->norm_after_rope;
  if (!norm_last) NormQueryAndKey(w, q, k);
  if (config_.Rotates(layer)) Rotate(layer, position, q, k);
  if (norm_last) NormQueryAndKey(w, q, k);
  const float scale = QueryScale(position);
  for (int i = 0; i < heads * head_dim; ++i) q[i] *= scale;
  if (SpreadsHeads()) SpreadHeads(q, heads);
  if (!owns) return;
  float* v = ws_.v.data() + at;
  if (config_.architecture->value_norm)
    NormHeads({.weight = ones_.data()}, v, config_.num_key_value_heads);
  if (SpreadsHeads()) {
    SpreadHeads(k, config_.num_key_value_heads);
    SpreadHeads(v, config_.num_key_value_heads);
  }
  Store(layer, token, k, v);
}

// With four bits, a rotation spreads the heads' outliers over their dimensions; attention's output
// is rotated back.
bool AttentionBlock::SpreadsHeads() const {
  return step_.place(0).cache->pool().type() == kernels::KvType::kQ4_0;
}

void AttentionBlock::SpreadHeads(float* heads, int count) {
  for (int h = 0; h < count; ++h)
    nn::Hadamard(heads + nn::Offset(h, config_.head_dim), config_.head_dim);
}

void AttentionBlock::Store(int layer, int token, const float* k, const float* v) {
  const int head_dim = config_.head_dim, position = step_.place(token).position;
  nn::KvCache& cache = *step_.place(token).cache;
  const nn::KvPool& pool = cache.pool();
  std::uint8_t* block = cache.block_at(position, pool.kind(layer));
  for (int head = 0; head < config_.num_key_value_heads; ++head) {
    kernels::StoreKeyAndValue({.type = pool.type(),
                               .head_dim = head_dim,
                               .slot = position % kernels::kKvBlock,
                               .key = k + nn::Offset(head, head_dim),
                               .value = v + nn::Offset(head, head_dim),
                               .keys = block + pool.keys_offset(layer, head),
                               .values = block + pool.values_offset(layer, head)});
  }
}

kernels::PositionSpan AttentionBlock::Window(int layer, int position) const {
  const int window = config_.WindowOf(layer);
  return {window > 0 ? std::max(0, position + 1 - window) : 0, position + 1};
}

void AttentionBlock::AttendChunk(int layer, const Rows& rows, int thread,
                                 const kernels::Activations& q,
                                 std::span<const kernels::PositionSpan> spans,
                                 const kernels::AttentionState& state) {
  const nn::KvCache& cache = *step_.place(rows.token).cache;
  const int kept = config_.KvLayerOf(layer);
  ops_.attention({.q = q,
                  .group = group_,
                  .head_dim = config_.head_dim,
                  .type = cache.pool().type(),
                  .blocks = cache.block_data(cache.pool().kind(kept)),
                  .keys_offset = cache.pool().keys_offset(kept, rows.kv_head),
                  .values_offset = cache.pool().values_offset(kept, rows.kv_head),
                  .tokens = base::IntSize(spans),
                  .spans = spans.data(),
                  .scores = ws_.scores[thread].data(),
                  .score_cap = static_cast<float>(config_.attention_cap),
                  .state = state});
}

int AttentionBlock::TokensOfTile(int tokens) const {
  const int kv_heads = config_.num_key_value_heads;
  int tile = std::max(1, kernels::kAttentionRows / group_);
  // Gives each thread several items.
  while (tile > 1 && (tokens + tile - 1) / tile * kv_heads < 2 * pool_.threads())
    tile = (tile + 1) / 2;
  return tile;
}

void AttentionBlock::AttendTokens(int layer) {
  const int kv_heads = config_.num_key_value_heads;
  pool_.Run(base::IntSize(step_.tiles()) * kv_heads, [&](int item, int thread) {
    const StepTokens::Tile& tile = step_.tiles()[item / kv_heads];
    AttendTile(layer, {tile.token, tile.count, item % kv_heads}, thread);
  });
}

void AttentionBlock::GatherQueries(const Rows& rows, int thread) {
  nn::ActivationBuffer& q = ws_.tile_q[thread];
  const int size = group_ * config_.head_dim;
  const bool quantised = kernels::IsQuantized(step_.place(rows.token).cache->pool().type());
  for (int t = 0; t < rows.count; ++t) {
    const std::ptrdiff_t head =
        nn::Offset(rows.token + t, config_.num_attention_heads) + rows.kv_head * group_;
    std::copy_n(ws_.q.x.data() + head * config_.head_dim, size, q.x.data() + nn::Offset(t, size));
    for (int g = 0; quantised && g < group_; ++g) nn::QuantizeToken(ops_, q, t * group_ + g);
  }
}

// Adds the tile's attention over one chunk to the tokens' running states.
void AttentionBlock::AddChunk(int layer, const Rows& rows, int chunk, int thread) {
  std::array<kernels::PositionSpan, kernels::kAttentionRows> spans;
  const kernels::AttentionState part = ws_.chunk.state(thread, 0);
  int first = -1, count = 0;
  for (int t = 0; t < rows.count; ++t) {
    const kernels::PositionSpan window = Window(layer, step_.place(rows.token + t).position);
    const kernels::PositionSpan span{std::max(window.begin, chunk * kAttentionChunk),
                                     std::min(window.end, (chunk + 1) * kAttentionChunk)};
    if (span.begin >= span.end) continue;
    if (first < 0) first = t;
    spans[count++] = span;
  }
  if (count == 0) return;
  const nn::ActivationBuffer& q = ws_.tile_q[thread];
  AttendChunk(layer, rows, thread, q.view(nn::Offset(first * group_, q.cols), q.cols),
              std::span(spans).first(count), part);
  for (int t = 0; t < count; ++t) {
    const kernels::AttentionState from = part.Row(t * group_, config_.head_dim),
                                  into = ws_.running.state(thread, (first + t) * group_);
    const int begin = Window(layer, step_.place(rows.token + first + t).position).begin;
    if (begin / kAttentionChunk == chunk) {
      kernels::CopyAttention(from, group_, config_.head_dim, into);
    } else {
      kernels::MergeAttention(from, group_, config_.head_dim, into);
    }
  }
}

void AttentionBlock::AttendTile(int layer, const Rows& rows, int thread) {
  GatherQueries(rows, thread);
  const int begin = Window(layer, step_.place(rows.token).position).begin,
            last = step_.place(rows.token + rows.count - 1).position;
  for (int chunk = begin / kAttentionChunk; chunk <= last / kAttentionChunk; ++chunk)
    AddChunk(layer, rows, chunk, thread);
  for (int t = 0; t < rows.count; ++t) {
    const int head = (rows.token + t) * config_.num_attention_heads + rows.kv_head * group_;
    kernels::FinishAttention(ws_.running.state(thread, t * group_), group_, config_.head_dim,
                             Sinks(layer, rows.kv_head),
                             ws_.attention.x.data() + nn::Offset(head, config_.head_dim));
  }
}

void AttentionBlock::AttendOne(int layer) {
  const kernels::PositionSpan window = Window(layer, step_.place(0).position);
  const int kv_heads = config_.num_key_value_heads, first = window.begin / kAttentionChunk;
  const int chunks = (window.end - 1) / kAttentionChunk - first + 1;
  if (kernels::IsQuantized(step_.place(0).cache->pool().type())) nn::QuantizeToken(ops_, ws_.q, 0);
  pool_.Run(kv_heads * chunks, [&](int item, int thread) {
    const int head = item % kv_heads, chunk = item / kv_heads;
    const std::array positions = {
        kernels::PositionSpan{std::max(window.begin, (first + chunk) * kAttentionChunk),
                              std::min(window.end, (first + chunk + 1) * kAttentionChunk)}};
    const kernels::Activations q =
        ws_.q.view(nn::Offset(head * group_, config_.head_dim), config_.head_dim);
    AttendChunk(layer, {0, 1, head}, thread, q, positions, ws_.parts.state(chunk, head * group_));
  });
  pool_.Run(kv_heads, [&](int head, int) {
    const kernels::AttentionState all = ws_.parts.state(0, head * group_);
    for (int chunk = 1; chunk < chunks; ++chunk)
      kernels::MergeAttention(ws_.parts.state(chunk, head * group_), group_, config_.head_dim, all);
    kernels::FinishAttention(all, group_, config_.head_dim, Sinks(layer, head),
                             ws_.attention.x.data() + nn::Offset(head * group_, config_.head_dim));
  });
}

}  // namespace thermocline::exec
