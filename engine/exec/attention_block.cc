#include "engine/exec/attention_block.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/index.h"
#include "engine/nn/alibi.h"
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
      origins_(p.config, p.weights, p.ops, p.workspace.context_length),
      heads_(p.config.LargestHeads()),
      gates_(p.config, p.workspace.tokens_max) {
  if (config_.latent.any())
    latent_.emplace(LatentAttention::Params{.config = config_,
                                            .ops = ops_,
                                            .pool = pool_,
                                            .multiplier = multiplier_,
                                            .tokens_max = ws_.tokens_max});
  if (config_.by_distance()) slopes_ = nn::AlibiSlopes(heads_.heads);
  if (config_.architecture->value_norm || config_.plain_head_norm) ones_.assign(heads_.dim, 1.0F);
  for (int layer = 0; layer < config_.num_hidden_layers; ++layer)
    group_max_ = std::max(group_max_, config_.HeadsOf(layer).group());
}

void AttentionBlock::Enter(int layer) {
  heads_ = config_.HeadsOf(layer);
  gates_.Enter(weights_.layers[layer], heads_);
  ws_.q.cols = ws_.attention.cols = heads_.q();
  for (nn::ActivationBuffer& q : ws_.tile_q) q.cols = heads_.dim;
}

void AttentionBlock::Run(int layer, bool by_inputs, Keys keys) {
  const int tokens = step_.count();
  const bool stores = keys == Keys::kNew && config_.OwnsKv(layer);
  Enter(layer);
  ProjectInput(layer, by_inputs, keys == Keys::kNew ? Wanted::kAll : Wanted::kQueries);
  nn::ForTokens(pool_, tokens, [&](int t) { RotateAndStore(layer, t, stores); });
  const base::Stopwatch watch;
  if (tokens == 1) {
    AttendOne(layer);
  } else {
    AttendTokens(layer);
  }
  Count(layer, watch);
  if (SpreadsHeads()) {
    nn::ForTokens(pool_, tokens, [&](int t) {
      SpreadHeads(ws_.attention.x.data() + nn::Offset(t, ws_.attention.cols), heads_.heads);
    });
  }
  ProjectOutput(layer, by_inputs);
}

void AttentionBlock::Count(int layer, const base::Stopwatch& watch) {
  double scores = 0;
  for (int t = 0; t < step_.count(); ++t) {
    const kernels::PositionSpan window = Window(layer, t);
    scores += static_cast<double>(window.end - window.begin) * heads_.heads;
  }
  counters_.seconds += watch.Seconds();
  counters_.scores += scores;
  counters_.operations += 2 * scores * heads_.dim;
}

// The queries are rotated, too, and not used.
void AttentionBlock::StoreOnly(int layer) {
  Enter(layer);
  ProjectInput(layer, false, Wanted::kKeys);
  nn::ForTokens(pool_, step_.count(), [&](int t) { RotateAndStore(layer, t, true); });
}

void AttentionBlock::ProjectInput(int index, bool by_inputs, Wanted wanted) {
  const model::LayerWeights& layer = weights_.layers[index];
  const int tokens = step_.count();
  if (by_inputs)
    return inputs_->Project(ws_.hidden.x.data(), tokens, ws_.q.x.data(), ws_.k.data(),
                            ws_.v.data());
  if (latent_.has_value())
    return latent_->Project(layer, ws_.hidden, tokens, ws_.q.x.data(), ws_.k.data(), ws_.v.data());
  const bool keys = wanted != Wanted::kQueries && layer.k.weight.rows > 0;
  const bool values = wanted != Wanted::kQueries && layer.v.weight.rows > 0;
  std::array<nn::Product, 4> products = {};
  std::size_t count = 0;
  if (wanted != Wanted::kKeys) products[count++] = gates_.Queries(ws_.q.x.data());
  if (wanted != Wanted::kKeys && gates_.has_matrix()) products[count++] = gates_.Gates();
  if (keys) products[count++] = {&layer.k, ws_.k.data()};
  if (values) products[count++] = {&layer.v, ws_.v.data()};
  multiplier_.Multiply(std::span(products).first(count), ws_.hidden.view(), tokens, false);
  if (keys && !values) std::copy_n(ws_.k.data(), nn::Offset(tokens, heads_.kv()), ws_.v.data());
  if (wanted != Wanted::kKeys)
    nn::ForTokens(pool_, tokens, [&](int t) { gates_.Split(t, ws_.q.x.data()); });
}

void AttentionBlock::ProjectOutput(int index, bool by_inputs) {
  const model::LayerWeights& layer = weights_.layers[index];
  const int tokens = step_.count();
  if (by_inputs) return inputs_->Output(ws_.attention.x.data(), tokens, ws_.attention_out.data());
  if (latent_.has_value())
    return latent_->Output(layer, ws_.attention.x.data(), tokens, ws_.attention_out.data());
  nn::ForTokens(pool_, tokens, [&](int t) {
    float* row = ws_.attention.x.data() + nn::Offset(t, ws_.attention.cols);
    gates_.Apply(t, row);
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
    float* head = heads + nn::Offset(h, heads_.dim);
    nn::Normalize(ops_, config_, norm, head, heads_.dim, head);
  }
}

void AttentionBlock::NormQueryAndKey(const model::LayerWeights& w, float* q, float* k) {
  if (config_.architecture->wide_norm) {
    nn::Normalize(ops_, config_, w.q_norm, q, heads_.q(), q);
    if (k != nullptr) nn::Normalize(ops_, config_, w.k_norm, k, heads_.kv(), k);
  } else {
    NormHeads(w.q_norm, q, heads_.heads);
    if (k != nullptr) NormHeads(w.k_norm, k, heads_.kv_heads);
  }
}

const nn::RopeTable& AttentionBlock::RopeTableOf(int layer) const {
  return &config_.RopeOf(layer) == &config_.window_rope ? ws_.window_rope : ws_.rope;
}

void AttentionBlock::Rotate(int layer, int position, float* q, float* k) {
  const model::RopeConfig& of = config_.RopeOf(layer);
  const nn::RopeTable& table = RopeTableOf(layer);
  kernels::RopeParams rope{
      .x = q,
      .heads = heads_.heads,
      .head_dim = heads_.dim,
      .rope_dim = of.dim,
      .cos = table.cos(position),
      .sin = table.sin(position),
      .halves = config_.architecture->position == model::Position::kRotaryHalves};
  ops_.rope(rope);
  if (k == nullptr) return;
  rope.x = k;
  rope.heads = heads_.kv_heads;
  ops_.rope(rope);
}

float AttentionBlock::QueryScale(int layer, int position) const {
  const float scale = config_.ScoreScale();
  if (config_.temperature_beta == 0) return scale;
  const bool unrotated = config_.architecture->temperature_unrotated;
  if (unrotated && config_.Rotates(layer)) return scale;
  const int periods = (position + (unrotated ? 1 : 0)) / config_.temperature_period;
  return scale * static_cast<float>(1 + config_.temperature_beta * std::log1p(periods));
}

void AttentionBlock::RotateAndStore(int layer, int token, bool stores) {
  const model::LayerWeights& w = weights_.layers[layer];
  const int position = step_.place(token).position;
  const std::ptrdiff_t at = nn::Offset(token, heads_.kv());
  float* q = ws_.q.x.data() + nn::Offset(token, heads_.q());
  float* k = stores ? ws_.k.data() + at : nullptr;
  const bool norm_last = config_.architecture->norm_after_rope;
  if (!norm_last) NormQueryAndKey(w, q, k);
  if (config_.Rotates(layer)) Rotate(layer, position, q, k);
  if (norm_last) NormQueryAndKey(w, q, k);
  if (config_.plain_head_norm && config_.Rotates(layer)) {
    const model::NormWeights plain{.weight = ones_.data()};
    NormHeads(plain, q, heads_.heads);
    if (k != nullptr) NormHeads(plain, k, heads_.kv_heads);
  }
  const float scale = QueryScale(layer, position);
  for (int i = 0; i < heads_.q(); ++i) q[i] *= scale;
  if (SpreadsHeads()) SpreadHeads(q, heads_.heads);
  if (!stores) return;
  float* v = ws_.v.data() + at;
  if (config_.architecture->value_norm) NormHeads({.weight = ones_.data()}, v, heads_.kv_heads);
  if (SpreadsHeads()) {
    SpreadHeads(k, heads_.kv_heads);
    SpreadHeads(v, heads_.kv_heads);
  }
  if (HasOrigin(layer)) SubtractOrigin(layer, position, k);
  Store(layer, token, k, v);
}

// With four bits, a rotation spreads the heads' outliers over their dimensions; attention's output
// is rotated back.
bool AttentionBlock::SpreadsHeads() const {
  return step_.place(0).cache->pool().type() == kernels::KvType::kQ4_0;
}

void AttentionBlock::SpreadHeads(float* heads, int count) {
  for (int h = 0; h < count; ++h) nn::Hadamard(heads + nn::Offset(h, heads_.dim), heads_.dim);
}

bool AttentionBlock::HasOrigin(int layer) const {
  return step_.place(0).cache->pool().type() == kernels::KvType::kQ8 && origins_.Has(layer);
}

void AttentionBlock::SubtractOrigin(int layer, int position, float* k) const {
  std::array<float, kernels::kHeadDimMax> origin;
  for (int head = 0; head < heads_.kv_heads; ++head) {
    origins_.Write(layer, head, position / kAttentionChunk, RopeTableOf(layer), origin.data());
    float* key = k + nn::Offset(head, heads_.dim);
    for (int i = 0; i < heads_.dim; ++i) key[i] -= origin[i];
  }
}

void AttentionBlock::Store(int layer, int token, const float* k, const float* v) {
  const int position = step_.place(token).position;
  nn::KvCache& cache = *step_.place(token).cache;
  const nn::KvPool& pool = cache.pool();
  std::uint8_t* block = cache.block_at(position, pool.kind(layer));
  for (int head = 0; head < heads_.kv_heads; ++head) {
    kernels::StoreKeyAndValue({.type = pool.type(),
                               .head_dim = heads_.dim,
                               .slot = position % kernels::kKvBlock,
                               .key = k + nn::Offset(head, heads_.dim),
                               .value = v + nn::Offset(head, heads_.dim),
                               .keys = block + pool.keys_offset(layer, head),
                               .values = block + pool.values_offset(layer, head)});
  }
}

kernels::PositionSpan AttentionBlock::Window(int layer, int token) const {
  const StepTokens::Place& place = step_.place(token);
  return {config_.FirstSeen(layer, place.position),
          config_.EndSeen(layer, place.position, place.end)};
}

void AttentionBlock::AttendChunk(int layer, const Rows& rows, int thread,
                                 const kernels::Activations& q,
                                 std::span<const kernels::PositionSpan> spans,
                                 const kernels::AttentionState& state) {
  const nn::KvCache& cache = *step_.place(rows.token).cache;
  const int kept = config_.KvLayerOf(layer);
  std::array<int, kernels::kAttentionRows> positions;
  for (int t = 0; !slopes_.empty() && t < base::IntSize(spans); ++t)
    positions[t] = step_.place(rows.token + t).position;
  std::array<float, kernels::kHeadDimMax> origin;
  if (HasOrigin(kept))
    origins_.Write(kept, rows.kv_head, spans[0].begin / kAttentionChunk, RopeTableOf(kept),
                   origin.data());
  ops_.attention({.q = q,
                  .group = heads_.group(),
                  .head_dim = heads_.dim,
                  .type = cache.pool().type(),
                  .blocks = cache.block_data(cache.pool().kind(kept)),
                  .keys_offset = cache.pool().keys_offset(kept, rows.kv_head),
                  .values_offset = cache.pool().values_offset(kept, rows.kv_head),
                  .tokens = base::IntSize(spans),
                  .spans = spans.data(),
                  .scores = ws_.scores[thread].data(),
                  .score_cap = static_cast<float>(config_.attention_cap),
                  .slopes = Slopes(rows.kv_head),
                  .positions = positions.data(),
                  .key_origin = HasOrigin(kept) ? origin.data() : nullptr,
                  .state = state});
}

int AttentionBlock::TokensOfTile(int tokens) const {
  const int kv_heads = config_.num_attention_heads / group_max_;
  int tile = std::max(1, kernels::kAttentionRows / group_max_);
  // Gives each thread several items.
  while (tile > 1 && (tokens + tile - 1) / tile * kv_heads < 2 * pool_.threads())
    tile = (tile + 1) / 2;
  return tile;
}

void AttentionBlock::AttendTokens(int layer) {
  const int kv_heads = heads_.kv_heads;
  pool_.Run(base::IntSize(step_.tiles()) * kv_heads, [&](int item, int thread) {
    const StepTokens::Tile& tile = step_.tiles()[item / kv_heads];
    AttendTile(layer, {tile.token, tile.count, item % kv_heads}, thread);
  });
}

void AttentionBlock::GatherQueries(const Rows& rows, int thread) {
  nn::ActivationBuffer& q = ws_.tile_q[thread];
  const int group = heads_.group(), size = group * heads_.dim;
  const bool quantised = kernels::IsQuantized(step_.place(rows.token).cache->pool().type());
  for (int t = 0; t < rows.count; ++t) {
    const std::ptrdiff_t head = nn::Offset(rows.token + t, heads_.heads) + rows.kv_head * group;
    std::copy_n(ws_.q.x.data() + head * heads_.dim, size, q.x.data() + nn::Offset(t, size));
    for (int g = 0; quantised && g < group; ++g) nn::QuantizeToken(ops_, q, t * group + g);
  }
}

// Adds the tile's attention over one chunk to the tokens' running states.
void AttentionBlock::AddChunk(int layer, const Rows& rows, int chunk, int thread) {
  std::array<kernels::PositionSpan, kernels::kAttentionRows> spans;
  const kernels::AttentionState part = ws_.chunk.state(thread, 0);
  int first = -1, count = 0;
  for (int t = 0; t < rows.count; ++t) {
    const kernels::PositionSpan window = Window(layer, rows.token + t);
    const kernels::PositionSpan span{std::max(window.begin, chunk * kAttentionChunk),
                                     std::min(window.end, (chunk + 1) * kAttentionChunk)};
    if (span.begin >= span.end) continue;
    if (first < 0) first = t;
    spans[count++] = span;
  }
  if (count == 0) return;
  const nn::ActivationBuffer& q = ws_.tile_q[thread];
  AttendChunk(layer, {rows.token + first, count, rows.kv_head}, thread,
              q.view(nn::Offset(first * heads_.group(), q.cols), q.cols),
              std::span(spans).first(count), part);
  for (int t = 0; t < count; ++t) {
    const kernels::AttentionState from = part.Row(t * heads_.group(), heads_.dim),
                                  into = ws_.running.state(thread, (first + t) * heads_.group());
    const int begin = Window(layer, rows.token + first + t).begin;
    if (begin / kAttentionChunk == chunk) {
      kernels::CopyAttention(from, heads_.group(), heads_.dim, into);
    } else {
      kernels::MergeAttention(from, heads_.group(), heads_.dim, into);
    }
  }
}

void AttentionBlock::AttendTile(int layer, const Rows& rows, int thread) {
  GatherQueries(rows, thread);
  const int begin = Window(layer, rows.token).begin,
            last = Window(layer, rows.token + rows.count - 1).end - 1;
  for (int chunk = begin / kAttentionChunk; chunk <= last / kAttentionChunk; ++chunk)
    AddChunk(layer, rows, chunk, thread);
  for (int t = 0; t < rows.count; ++t) {
    const int head = (rows.token + t) * heads_.heads + rows.kv_head * heads_.group();
    kernels::FinishAttention(ws_.running.state(thread, t * heads_.group()), heads_.group(),
                             heads_.dim, Sinks(layer, rows.kv_head),
                             ws_.attention.x.data() + nn::Offset(head, heads_.dim));
  }
}

void AttentionBlock::AttendOne(int layer) {
  const kernels::PositionSpan window = Window(layer, 0);
  const int kv_heads = heads_.kv_heads, first = window.begin / kAttentionChunk;
  const int chunks = (window.end - 1) / kAttentionChunk - first + 1;
  if (kernels::IsQuantized(step_.place(0).cache->pool().type())) nn::QuantizeToken(ops_, ws_.q, 0);
  pool_.Run(kv_heads * chunks, [&](int item, int thread) {
    const int head = item % kv_heads, chunk = item / kv_heads;
    const std::array positions = {
        kernels::PositionSpan{std::max(window.begin, (first + chunk) * kAttentionChunk),
                              std::min(window.end, (first + chunk + 1) * kAttentionChunk)}};
    const kernels::Activations q =
        ws_.q.view(nn::Offset(head * heads_.group(), heads_.dim), heads_.dim);
    AttendChunk(layer, {0, 1, head}, thread, q, positions,
                ws_.parts.state(chunk, head * heads_.group()));
  });
  pool_.Run(kv_heads, [&](int head, int) {
    const kernels::AttentionState all = ws_.parts.state(0, head * heads_.group());
    for (int chunk = 1; chunk < chunks; ++chunk)
      kernels::MergeAttention(ws_.parts.state(chunk, head * heads_.group()), heads_.group(),
                              heads_.dim, all);
    kernels::FinishAttention(
        all, heads_.group(), heads_.dim, Sinks(layer, head),
        ws_.attention.x.data() + nn::Offset(head * heads_.group(), heads_.dim));
  });
}

}  // namespace thermocline::exec
