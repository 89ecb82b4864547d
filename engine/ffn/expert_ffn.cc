#include "engine/ffn/expert_ffn.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {
namespace {

// Tokens that are multiplied together, and output columns of a work item, at most.
constexpr int kTileTokens = 64, kExpertColumns = 512;
constexpr int kItemsPerThread = 8;  // of a loop: threads end together

// Panels of a work item, of `panels` in all: pairs, since 32 neurons are an 8-bit block.
int PanelsPerItem(int panels, int threads, int most) {
  const int even = panels / (threads * kItemsPerThread) / 2 * 2;
  return std::clamp(even, 2, most);
}

int NumItems(int panels, int per_item) { return (panels + per_item - 1) / per_item; }

void AddWeighed(const float* y, float weight, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] += weight * y[i];
}

}  // namespace

ExpertFfn::ExpertFfn(const FfnContext& context, int tokens_max)
    : context_(context),
      router_(context.config.experts),
      starts_(context.config.experts.num_experts + 1),
      scratch_(context.pool.threads()) {
  const model::ExpertConfig& e = context.config.experts;
  const int d = context.config.hidden_size;
  const int places = tokens_max * e.num_experts_per_tok;
  logits_.resize(base::Area(tokens_max, e.num_experts));
  chosen_.reserve(places);
  chosen_ids_.resize(e.num_experts_per_tok);
  units_.reserve(std::min(places, e.num_experts) + 1);
  ready_.reserve(units_.capacity());
  ids_.resize(places);
  weights_.resize(places);
  h_.Resize(places, e.intermediate_size);
  up_.resize(base::Area(places, e.intermediate_size));
  shared_h_.Resize(tokens_max, e.shared_intermediate_size);
  shared_up_.resize(base::Area(tokens_max, e.shared_intermediate_size));
  shared_weight_.resize(tokens_max);
  for (Scratch& scratch : scratch_) {
    scratch.tokens.Resize(std::min(tokens_max, kTileTokens), d);
    scratch.down.resize(base::Area(std::min(tokens_max, kTileTokens), std::min(d, kExpertColumns)));
  }
}

std::size_t ExpertFfn::Bytes(const FfnSizes& sizes) {
  const model::ExpertConfig& e = sizes.config.experts;
  if (!e.any()) return 0;
  const int tokens = sizes.tokens_max, d = sizes.config.hidden_size;
  const int places = tokens * e.num_experts_per_tok, tile = std::min(tokens, kTileTokens);
  const std::size_t scratch = nn::ActivationBuffer::Bytes(tile, d) +
                              base::Area(tile, std::min(d, kExpertColumns)) * sizeof(float);
  return base::Area(tokens, e.num_experts) * sizeof(float) +
         base::Area(places, 1) * (sizeof(ChosenExpert) + sizeof(int) + sizeof(float)) +
         base::Area(std::min(places, e.num_experts) + 1, 1) *
             (sizeof(Unit) + sizeof(std::uintptr_t)) +
         (sizes.flash ? FlashExperts::Bytes(sizes.config) : 0) +
         nn::ActivationBuffer::Bytes(places, e.intermediate_size) +
         base::Area(places, e.intermediate_size) * sizeof(float) +
         nn::ActivationBuffer::Bytes(tokens, e.shared_intermediate_size) +
         base::Area(tokens, e.shared_intermediate_size + 1) * sizeof(float) +
         base::Area(4, e.num_experts) * sizeof(float) + sizes.threads * scratch;
}

Status ExpertFfn::Run(int layer, const FfnInput& input, float* out) {
  const bool chosen = context_.config.experts.router.before_attention;
  if (!chosen) Choose(layer, input.hidden.view(), input.tokens);
  MakeUnits(layer, input);
  if (flash_.has_value()) {
    RETURN_IF_ERROR(ComputeFromFlash(layer, input));
  } else {
    for (Unit& unit : units_) ready_.push_back(&unit);
    ComputeNeurons(input);
  }
  SumDown(input.tokens, out);
  if (flash_.has_value()) flash_->EndLayer(layer);
  return OkStatus();
}

void ExpertFfn::ChooseFirst(int layer, const float* residual, int tokens) {
  Choose(layer, {.x = residual, .cols = context_.config.hidden_size}, tokens);
}

Status ExpertFfn::ComputeFromFlash(int layer, const FfnInput& input) {
  const bool some_late = flash_->reading();
  if (input.tokens == 1) flash_->ReadAhead(layer, input.residual);
  PlaceReady(layer);
  ComputeNeurons(input);
  flash_->Poke();
  if (!some_late) return OkStatus();
  RETURN_IF_ERROR(flash_->Await());
  PlaceReady(layer);
  ComputeNeurons(input);
  return OkStatus();
}

void ExpertFfn::PlaceReady(int layer) {
  ready_.clear();
  for (Unit& unit : units_) {
    const bool shared = unit.expert < 0;
    if (unit.placed || (!shared && !flash_->Has(layer, unit.expert))) continue;
    unit.placed = true;
    ready_.push_back(&unit);
    if (shared) continue;
    const FlashExperts::Place place = flash_->PlaceOf(layer, unit.expert);
    unit.gate.weight.data = place.gate;
    unit.up.weight.data = place.up;
    unit.down.weight.data = place.down;
  }
}

void ExpertFfn::Choose(int layer, const kernels::Activations& input, int tokens) {
  const model::ExpertWeights& w = context_.layer(layer).experts;
  const std::size_t e = context_.config.experts.num_experts,
                    k = context_.config.experts.num_experts_per_tok;
  const std::array product = {nn::Product{&w.router, logits_.data()}};
  context_.multiplier.Multiply(product, input, tokens);
  chosen_.resize(tokens * k);
  for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
    router_.Choose(std::span(logits_).subspan(t * e, e), w.choice_bias,
                   std::span(chosen_).subspan(t * k, k));
  }
  for (std::size_t i = 0; i < k; ++i) chosen_ids_[i] = chosen_[i].expert;
  if (flash_.has_value()) flash_->Request(layer, chosen_, tokens);
}

void ExpertFfn::MakeUnits(int layer, const FfnInput& input) {
  const model::ExpertWeights& w = context_.layer(layer).experts;
  units_.clear();
  ready_.clear();
  for (Scratch& scratch : scratch_) scratch.unit = nullptr;
  AddExperts(w, input.tokens);
  if (w.shared_up.weight.rows > 0) AddShared(w, input);
}

void ExpertFfn::AddExperts(const model::ExpertWeights& w, int tokens) {
  const model::ExpertConfig& e = context_.config.experts;
  const int k = e.num_experts_per_tok, f = e.intermediate_size, d = context_.config.hidden_size;
  std::fill(starts_.begin(), starts_.end(), 0);
  for (const ChosenExpert& c : chosen_) ++starts_[c.expert + 1];
  for (int i = 0; i < e.num_experts; ++i) starts_[i + 1] += starts_[i];
  const auto of = [](const model::Linear& all, int expert, int rows) {
    return model::Linear{model::ExpertWeights::Of(all.weight, expert, rows),
                         all.bias == nullptr ? nullptr : all.bias + nn::Offset(expert, rows)};
  };
  for (int i = 0; i < e.num_experts; ++i) {
    const int first = starts_[i], count = starts_[i + 1] - first;
    if (count == 0) continue;
    units_.push_back({.expert = i,
                      .gate = context_.gated() ? of(w.gate, i, f) : model::Linear{},
                      .up = of(w.up, i, f),
                      .down = of(w.down, i, d),
                      .tokens = count,
                      .ids = ids_.data() + first,
                      .weight = weights_.data() + first,
                      .h = &h_,
                      .up_out = up_.data(),
                      .first = first});
  }
  // A token's place among its expert's: starts_ moves on.
  for (int t = 0; t < tokens; ++t) {
    for (int i = 0; i < k; ++i) {
      const ChosenExpert& c = chosen_[nn::Offset(t, k) + i];
      const int place = starts_[c.expert]++;
      ids_[place] = t;
      weights_[place] = c.weight;
    }
  }
}

void ExpertFfn::AddShared(const model::ExpertWeights& w, const FfnInput& input) {
  const int d = context_.config.hidden_size;
  for (int t = 0; t < input.tokens; ++t) {
    float score = 0;
    const float* x = input.hidden.x.data() + nn::Offset(t, d);
    for (int i = 0; w.shared_switch != nullptr && i < d; ++i) score += w.shared_switch[i] * x[i];
    shared_weight_[t] = w.shared_switch == nullptr ? 1.0F : 1.0F / (1.0F + std::exp(-score));
  }
  units_.push_back({.gate = w.shared_gate,
                    .up = w.shared_up,
                    .down = w.shared_down,
                    .tokens = input.tokens,
                    .weight = shared_weight_.data(),
                    .h = &shared_h_,
                    .up_out = shared_up_.data()});
}

void ExpertFfn::ComputeNeurons(const FfnInput& input) {
  int panels = 0;
  for (const Unit* unit : ready_) panels += kernels::NumPanels(unit->neurons());
  const int per_item = PanelsPerItem(panels, context_.pool.threads(), panels);
  int items = 0;
  for (const Unit* unit : ready_) items += NumItems(kernels::NumPanels(unit->neurons()), per_item);
  context_.pool.Run(items, [&](int item, int thread) {
    for (const Unit* unit : ready_) {
      const int unit_panels = kernels::NumPanels(unit->neurons());
      const int unit_items = NumItems(unit_panels, per_item);
      if (item < unit_items)
        return ComputeRange(*unit, input, item * per_item,
                            std::min(unit_panels, (item + 1) * per_item), thread);
      item -= unit_items;
    }
  });
}

void ExpertFfn::ComputeRange(const Unit& unit, const FfnInput& input, int panel_begin,
                             int panel_end, int thread) {
  const int f = unit.neurons(), row = panel_begin * kernels::kPanelRows;
  const int rows = std::min(f, panel_end * kernels::kPanelRows) - row;
  for (Tile tile{0, 0}; tile.first < unit.tokens; tile.first += kTileTokens) {
    tile.count = std::min(kTileTokens, unit.tokens - tile.first);
    const std::ptrdiff_t at = nn::Offset(unit.first + tile.first, f);
    const kernels::Activations x = Gather(unit, input, tile, thread);
    const auto multiply = [&](const model::Linear& matrix, float* out) {
      context_.ops.gemm({.weights = matrix.weight,
                         .activations = x,
                         .tokens = tile.count,
                         .out = out,
                         .out_stride = f,
                         .panel_begin = panel_begin,
                         .panel_end = panel_end,
                         .prefetch_bytes = context_.multiplier.prefetch_bytes()});
      for (int t = 0; matrix.bias != nullptr && t < tile.count; ++t)
        context_.ops.add(out + nn::Offset(t, f) + row, matrix.bias + row, rows);
    };
    if (context_.gated()) multiply(unit.gate, unit.h->x.data() + at);
    multiply(unit.up, context_.gated() ? unit.up_out + at : unit.h->x.data() + at);
    ActivateRange(unit, tile, row, rows);
  }
}

kernels::Activations ExpertFfn::Gather(const Unit& unit, const FfnInput& input, Tile tile,
                                       int thread) {
  const int d = context_.config.hidden_size, blocks = d / kernels::kActivationBlock;
  const int* ids = unit.ids;
  if (ids == nullptr) return input.hidden.view(nn::Offset(tile.first, d), d);
  if (tile.count == 1) return input.hidden.view(nn::Offset(ids[tile.first], d), d);
  Scratch& scratch = scratch_[thread];
  nn::ActivationBuffer& to = scratch.tokens;
  if (scratch.unit == &unit && scratch.first == tile.first) return to.view();
  scratch.unit = &unit;
  scratch.first = tile.first;
  const nn::ActivationBuffer& from = input.hidden;
  const bool floats = !kernels::Traits(unit.up.weight.type).quantized;
  for (int i = 0; i < tile.count; ++i) {
    const auto copy = [&](const auto& source, auto& target, int n) {
      std::copy_n(source.data() + nn::Offset(ids[tile.first + i], n), n,
                  target.data() + nn::Offset(i, n));
    };
    if (floats) copy(from.x, to.x, d);
    copy(from.q, to.q, d);
    copy(from.scale, to.scale, blocks);
    copy(from.scaled_sum, to.scaled_sum, blocks);
    copy(from.sum, to.sum, blocks);
    copy(from.half_sum, to.half_sum, blocks);
    copy(from.pair_sum, to.pair_sum, 2 * blocks);
  }
  return to.view();
}

void ExpertFfn::ActivateRange(const Unit& unit, Tile tile, int row, int rows) {
  const int f = unit.neurons();
  for (int t = 0; t < tile.count; ++t) {
    const std::ptrdiff_t at = nn::Offset(unit.first + tile.first + t, f) + row;
    float* h = unit.h->x.data() + at;
    context_.Activate(
        {.gate = h, .up = context_.gated() ? unit.up_out + at : nullptr, .n = rows, .out = h});
    if (f % kernels::kActivationBlock == 0) nn::QuantizeRange(context_.ops, *unit.h, at, rows);
  }
}

void ExpertFfn::SumDown(int tokens, float* out) {
  const int d = context_.config.hidden_size, panels = kernels::NumPanels(d);
  const int per_item =
      PanelsPerItem(panels, context_.pool.threads(), kExpertColumns / kernels::kPanelRows);
  context_.pool.Run(NumItems(panels, per_item), [&](int item, int thread) {
    const int begin = item * per_item, end = std::min(panels, begin + per_item);
    const int column = begin * kernels::kPanelRows,
              columns = std::min(d, end * kernels::kPanelRows) - column;
    for (int t = 0; t < tokens; ++t) std::fill_n(out + nn::Offset(t, d) + column, columns, 0.0F);
    for (const Unit& unit : units_) {
      CHECK(unit.down.weight.data != nullptr);
      AddDown(unit, begin, end, thread, out);
    }
  });
}

void ExpertFfn::AddDown(const Unit& unit, int panel_begin, int panel_end, int thread, float* out) {
  const int d = context_.config.hidden_size, f = unit.neurons();
  const int column = panel_begin * kernels::kPanelRows,
            columns = std::min(d, panel_end * kernels::kPanelRows) - column;
  float* down = scratch_[thread].down.data();
  for (int first = 0; first < unit.tokens; first += kTileTokens) {
    const int count = std::min(kTileTokens, unit.tokens - first);
    context_.ops.gemm({.weights = unit.down.weight,
                       .activations = unit.h->view(nn::Offset(unit.first + first, f), f),
                       .tokens = count,
                       .out = down - column,
                       .out_stride = columns,
                       .panel_begin = panel_begin,
                       .panel_end = panel_end,
                       .prefetch_bytes = context_.multiplier.prefetch_bytes()});
    for (int i = 0; i < count; ++i) {
      float* y = down + nn::Offset(i, columns);
      if (unit.down.bias != nullptr) context_.ops.add(y, unit.down.bias + column, columns);
      const int token = unit.ids == nullptr ? first + i : unit.ids[first + i];
      AddWeighed(y, unit.weight[first + i], columns, out + nn::Offset(token, d) + column);
    }
  }
}

void ExpertFfn::Count(int layer, FfnCounters& counters) const {
  const model::ExpertWeights& w = context_.layer(layer).experts;
  const model::ExpertConfig& e = context_.config.experts;
  const std::int64_t rows =
      std::int64_t{e.num_experts_per_tok} * e.intermediate_size + e.shared_intermediate_size;
  ++counters.tokens;
  counters.gate_rows += rows;
  counters.up_rows += context_.gated() ? rows : 0;
  counters.down_rows += rows;
  counters.operations += DenseOperations(context_.config, layer);
  counters.bytes += static_cast<std::int64_t>(w.bytes_per_step(e.num_experts_per_tok));
}

}  // namespace thermocline::ffn
