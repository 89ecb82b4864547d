#include "engine/exec/recurrent_block.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/index.h"
#include "engine/nn/for_tokens.h"
#include "engine/nn/normalize.h"
#include "engine/nn/offset.h"

namespace thermocline::exec {
namespace {

using model::Mixer;
using nn::Offset;

// Rows of the matrix that computes the convolution's input.
int InRows(const model::ModelConfig& c) {
  const model::RecurrentConfig& r = c.recurrent;
  const int channels = r.channels(c.hidden_size);
  if (r.kind == Mixer::kShortConv) return 3 * c.hidden_size;
  return r.kind == Mixer::kMamba2 ? r.inner() + channels + r.heads : channels;
}

int OutColumns(const model::ModelConfig& c) {
  return c.recurrent.kind == Mixer::kShortConv ? c.hidden_size : c.recurrent.inner();
}

}  // namespace

RecurrentBlock::RecurrentBlock(const Params& p)
    : config_(p.config),
      r_(p.config.recurrent),
      weights_(p.weights),
      ops_(p.ops),
      pool_(p.pool),
      multiplier_(p.multiplier),
      ws_(p.workspace),
      step_(p.step),
      inputs_(p.config, p.weights, p.ops),
      channels_(r_.channels(p.config.hidden_size)),
      in_rows_(InRows(p.config)) {
  const int tokens = ws_.tokens_max;
  in_.resize(base::Area(tokens, in_rows_));
  columns_.resize(base::Area(tokens, channels_));
  out_.Resize(tokens, OutColumns(config_));
  taps_.resize(inputs_.taps_size());
  if (r_.kind == Mixer::kShortConv) return;
  alpha_.resize(base::Area(tokens, 2 * r_.heads));
  beta_.resize(base::Area(tokens, r_.heads));
  gates_.resize(base::Area(tokens, 2 * r_.heads));
  values_.resize(base::Area(tokens, r_.inner()));
  z_.resize(r_.kind == Mixer::kDeltaNet ? values_.size() : 0);
  scratch_state_.assign(pool_.threads(), std::vector<float>(base::Area(r_.key_dim, r_.value_dim)));
}

std::size_t RecurrentBlock::Bytes(const model::ModelConfig& c, int tokens_max, int threads) {
  const model::RecurrentConfig& r = c.recurrent;
  if (!r.any()) return 0;
  const int channels = r.channels(c.hidden_size);
  const std::size_t token = InRows(c) + channels + 2 * r.inner() + 5 * r.heads;
  const std::size_t thread = base::Area(r.key_dim, r.value_dim);
  return sizeof(float) * (tokens_max * token + threads * thread + r.taps * channels) +
         nn::ActivationBuffer::Bytes(tokens_max, OutColumns(c)) + RecurrentInputs::Bytes(c);
}

void RecurrentBlock::Run(int layer) {
  const float* taps = inputs_.TapsOf(layer, taps_);
  for (const StepTokens::Part& part : step_.parts()) Settle(layer, taps, part);
  Project(layer);
  nn::ForTokens(pool_, step_.count(), [&](int t) { ConvolveToken(layer, taps, t); });
  if (r_.kind != Mixer::kShortConv) {
    pool_.Run(base::IntSize(step_.parts()) * r_.heads, [&](int item, int thread) {
      Recur(layer, step_.parts()[item / r_.heads], item % r_.heads, thread);
    });
  }
  for (const StepTokens::Part& part : step_.parts()) EndPart(layer, part);
  Output(layer);
}

void RecurrentBlock::Project(int layer) {
  const model::RecurrentWeights& w = weights_.layers[layer].recurrent;
  const int tokens = step_.count();
  std::array<nn::Product, 4> products = {nn::Product{&w.in, in_.data()}};
  std::size_t count = 1;
  for (const auto& [linear, out] : {std::pair{&w.gate, z_.data()},
                                    {&w.alpha, alpha_.data()},
                                    {&w.beta, beta_.data()},
                                    {&w.beta_alpha, alpha_.data()}})
    if (linear->weight.rows > 0) products[count++] = {linear, out};
  multiplier_.Multiply(std::span(products).first(count), ws_.hidden.view(), tokens, false);
  if (r_.kind != Mixer::kShortConv) return;
  // b * x', written in place of b.
  const int d = config_.hidden_size;
  nn::ForTokens(pool_, tokens, [&](int t) {
    float* row = in_.data() + Offset(t, in_rows_);
    for (int i = 0; i < d; ++i) row[i] *= row[2 * d + i];
  });
}

// Mamba's rows are z, then the columns, then the steps.
const float* RecurrentBlock::Column(int token) const {
  return in_.data() + Offset(token, in_rows_) + (r_.kind == Mixer::kMamba2 ? r_.inner() : 0);
}

template <typename ColumnOf>
auto RecurrentBlock::RowsOf(const float* history, int index, const ColumnOf& column_of) const
    -> TapRows {
  TapRows rows = {};
  for (int t = 0; t < r_.taps; ++t) {
    const int at = index - (r_.taps - 1) + t;
    rows[t] = at >= 0 ? column_of(at) : history + Offset(at + r_.taps - 1, channels_);
  }
  return rows;
}

void RecurrentBlock::ConvolveToken(int layer, const float* taps, int token) {
  nn::KvCache* const cache = step_.place(token).cache;
  const int index = step_.place(token).position - cache->length(),
            first = token - index;  // in its part
  const float* history = cache->state().data() + cache->pool().states().layout().columns_at(layer);
  const TapRows rows = RowsOf(history, index, [&](int at) { return Column(first + at); });
  inputs_.Convolve(layer, taps, std::span(rows).first(r_.taps),
                   columns_.data() + Offset(token, channels_));
  if (r_.kind == Mixer::kShortConv) return;
  const model::RecurrentWeights& w = weights_.layers[layer].recurrent;
  float* gates = gates_.data() + Offset(token, 2 * r_.heads);
  if (r_.kind == Mixer::kMamba2) {
    inputs_.Gates(layer, Column(token) + channels_, nullptr, gates);
    (void)inputs_.Values(columns_.data() + Offset(token, channels_), gates,
                         values_.data() + Offset(token, r_.inner()));
  } else if (w.beta_alpha.weight.rows > 0) {
    inputs_.Gates(layer, alpha_.data() + Offset(token, 2 * r_.heads), nullptr, gates);
  } else {
    inputs_.Gates(layer, alpha_.data() + Offset(token, r_.heads),
                  beta_.data() + Offset(token, r_.heads), gates);
  }
}

void RecurrentBlock::Recur(int layer, const StepTokens::Part& part, int head, int thread) {
  const std::ptrdiff_t size = Offset(r_.key_dim, r_.value_dim);
  float* state = part.cache->state().data() +
                 part.cache->pool().states().layout().matrices_at(layer) + head * size;
  if (part.tentative) {
    float* copy = scratch_state_[thread].data();
    std::copy_n(state, size, copy);
    state = copy;
  }
  const Vectors vectors{.tokens = part.count,
                        .columns = columns_.data() + Offset(part.first, channels_),
                        .values = values_.data() + Offset(part.first, r_.inner()),
                        .gates = gates_.data() + Offset(part.first, 2 * r_.heads),
                        .gate_stride = 2 * r_.heads};
  RecurHead(state, head, vectors, out_.x.data() + Offset(part.first, out_.cols));
}

void RecurrentBlock::RecurHead(float* state, int head, const Vectors& of, float* out) {
  const bool delta = r_.kind == Mixer::kDeltaNet;
  const float* values = delta ? inputs_.Values(of.columns, of.gates, nullptr) : of.values;
  ops_.recurrence({.state = state,
                   .rows = r_.key_dim,
                   .cols = r_.value_dim,
                   .state_stride = r_.value_dim,
                   .tokens = of.tokens,
                   .key_stride = channels_,
                   .value_stride = delta ? channels_ : r_.inner(),
                   .gate_stride = of.gate_stride,
                   .out_stride = out_.cols,
                   .k = inputs_.Key(of.columns, head),
                   .q = inputs_.Query(of.columns, head),
                   .v = values + Offset(head, r_.value_dim),
                   .decay = of.gates + head,
                   .beta = delta ? of.gates + r_.heads + head : nullptr,
                   .out = out == nullptr ? nullptr : out + Offset(head, r_.value_dim)});
}

template <typename ColumnOf>
void RecurrentBlock::PushColumns(float* history, int count, const ColumnOf& column_of) const {
  const int kept = r_.taps - 1, old = std::max(0, kept - count);
  std::copy_n(history + Offset(kept - old, channels_), Offset(old, channels_), history);
  for (int i = old; i < kept; ++i)
    std::copy_n(column_of(count - (kept - i)), channels_, history + Offset(i, channels_));
}

void RecurrentBlock::EndPart(int layer, const StepTokens::Part& part) {
  if (part.tentative) return KeepInputs(layer, part);
  float* history =
      part.cache->state().data() + part.cache->pool().states().layout().columns_at(layer);
  PushColumns(history, part.count, [&](int i) { return Column(part.first + i); });
}

void RecurrentBlock::KeepInputs(int layer, const StepTokens::Part& part) {
  const std::size_t at = part.cache->pool().states().layout().inputs_at(layer);
  for (int i = 0; i < part.count; ++i) {
    float* kept = part.cache->pending(i) + at;
    kept = std::copy_n(Column(part.first + i), channels_, kept);
    if (r_.kind != Mixer::kShortConv)
      std::copy_n(gates_.data() + Offset(part.first + i, 2 * r_.heads), 2 * r_.heads, kept);
  }
}

void RecurrentBlock::Output(int layer) {
  nn::ForTokens(pool_, step_.count(), [&](int t) {
    GateToken(layer, t);
    nn::QuantizeToken(ops_, out_, t);
  });
  const std::array output = {
      nn::Product{&weights_.layers[layer].recurrent.out, ws_.attention_out.data()}};
  multiplier_.Multiply(output, out_.view(), step_.count(), false);
}

void RecurrentBlock::GateToken(int layer, int token) {
  const model::RecurrentWeights& w = weights_.layers[layer].recurrent;
  float* y = out_.x.data() + Offset(token, out_.cols);
  const float* in = in_.data() + Offset(token, in_rows_);
  const float* columns = columns_.data() + Offset(token, channels_);
  if (r_.kind == Mixer::kShortConv) {
    const int d = config_.hidden_size;
    for (int i = 0; i < d; ++i) y[i] = in[d + i] * columns[i];
    return;
  }
  if (r_.kind == Mixer::kDeltaNet) {
    for (int h = 0; h < r_.heads; ++h) {
      float* head = y + Offset(h, r_.value_dim);
      nn::Normalize(ops_, config_, w.norm, head, r_.value_dim, head);
    }
    ops_.gated({.gate = z_.data() + Offset(token, r_.inner()), .up = y, .n = r_.inner(), .out = y});
    return;
  }
  for (int i = 0; i < r_.inner(); ++i) y[i] += w.skip[i / r_.value_dim] * columns[i];
  ops_.gated({.gate = in, .up = y, .n = r_.inner(), .out = y});
  const int group = r_.inner() / r_.key_heads;
  for (int g = 0; g < r_.key_heads; ++g) {
    float* slice = y + Offset(g, group);
    nn::Normalize(ops_, config_, {.weight = w.norm.weight + Offset(g, group)}, slice, group, slice);
  }
}

void RecurrentBlock::Settle(int layer, const float* taps, const StepTokens::Part& part) {
  nn::KvCache& cache = *part.cache;
  const int count = cache.length() - cache.state_length();
  if (count == 0) return;
  const nn::StateLayout& layout = cache.pool().states().layout();
  float* const state = cache.state().data();
  float* const history = state + layout.columns_at(layer);
  const auto column = [&](int i) -> const float* {
    return cache.pending(i) + layout.inputs_at(layer);
  };
  if (r_.kind != Mixer::kShortConv) {
    nn::ForTokens(pool_, count, [&](int i) {
      const TapRows rows = RowsOf(history, i, column);
      float* columns = columns_.data() + Offset(i, channels_);
      inputs_.Convolve(layer, taps, std::span(rows).first(r_.taps), columns);
      (void)inputs_.Values(columns, column(i) + channels_, values_.data() + Offset(i, r_.inner()));
    });
    const Vectors vectors{.tokens = count,
                          .columns = columns_.data(),
                          .values = values_.data(),
                          .gates = column(0) + channels_,
                          .gate_stride = static_cast<std::ptrdiff_t>(layout.input_floats())};
    pool_.Run(r_.heads, [&](int head, int) {
      RecurHead(state + layout.matrices_at(layer) + head * Offset(r_.key_dim, r_.value_dim), head,
                vectors, nullptr);
    });
  }
  PushColumns(history, count, column);
}

}  // namespace thermocline::exec
