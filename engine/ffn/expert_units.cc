#include "engine/ffn/expert_units.h"

#include "engine/base/index.h"
#include "engine/nn/for_tokens.h"
#include "engine/nn/offset.h"

namespace thermocline::ffn {
namespace {

constexpr int kItemsPerThread = 8;  // of a loop, so that threads finish at about the same time

int NumItems(int panels, int per_item) { return (panels + per_item - 1) / per_item; }

}  // namespace

ExpertComputer::ExpertComputer(const FfnContext& context, int tokens_max)
    : context_(context), scratch_(context.pool.threads()) {
  const int d = context.config.hidden_size, tile = std::min(tokens_max, kTileTokens);
  for (Scratch& scratch : scratch_) {
    scratch.tokens.Resize(tile, d);
    scratch.down.resize(base::Area(tile, std::min(d, kExpertColumns)));
  }
}

std::size_t ExpertComputer::Bytes(const FfnSizes& sizes) {
  const int d = sizes.config.hidden_size, tile = std::min(sizes.tokens_max, kTileTokens);
  if (!sizes.config.experts.any()) return 0;
  return sizes.threads * (nn::ActivationBuffer::Bytes(tile, d) +
                          base::Area(tile, std::min(d, kExpertColumns)) * sizeof(float));
}

int ExpertComputer::PanelsPerItem(int panels, int most) const {
  const int even = panels / (context_.pool.threads() * kItemsPerThread) / 2 * 2;
  return std::clamp(even, 2, most);
}

void ExpertComputer::ComputeNeurons(std::span<ExpertUnit* const> units, const FfnInput& input) {
  int panels = 0;
  for (const ExpertUnit* unit : units) panels += kernels::NumPanels(unit->neurons());
  const int per_item = PanelsPerItem(panels, panels);
  int items = 0;
  for (const ExpertUnit* unit : units)
    items += NumItems(kernels::NumPanels(unit->neurons()), per_item);
  context_.pool.Run(items, [&](int item, int thread) {
    for (const ExpertUnit* unit : units) {
      const int unit_panels = kernels::NumPanels(unit->neurons());
      const int unit_items = NumItems(unit_panels, per_item);
      if (item < unit_items)
        return ComputeRange(*unit, input, item * per_item,
                            std::min(unit_panels, (item + 1) * per_item), thread);
      item -= unit_items;
    }
  });
  if (context_.multiplier.tap() != nullptr) PassToTap(units, input);
}

void ExpertComputer::PassToTap(std::span<ExpertUnit* const> units, const FfnInput& input) {
  nn::ProductTap& tap = *context_.multiplier.tap();
  for (const ExpertUnit* unit : units) {
    for (int i = 0; i < unit->tokens; ++i) {
      const int token = unit->ids == nullptr ? i : unit->ids[i];
      const float* x = input.hidden.x.data() + nn::Offset(token, context_.config.hidden_size);
      if (context_.gated()) tap.OnProduct(unit->gate.weight, x, 1);
      tap.OnProduct(unit->up.weight, x, 1);
      tap.OnProduct(unit->down.weight,
                    unit->h->x.data() + nn::Offset(unit->first + i, unit->neurons()), 1);
    }
  }
}

void ExpertComputer::ComputeRange(const ExpertUnit& unit, const FfnInput& input, int panel_begin,
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

kernels::Activations ExpertComputer::Gather(const ExpertUnit& unit, const FfnInput& input,
                                            Tile tile, int thread) {
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

void ExpertComputer::ActivateRange(const ExpertUnit& unit, Tile tile, int row, int rows) {
  const int f = unit.neurons();
  for (int t = 0; t < tile.count; ++t) {
    const std::ptrdiff_t at = nn::Offset(unit.first + tile.first + t, f) + row;
    float* h = unit.h->x.data() + at;
    if (unit.input_weight != nullptr) {
      nn::Scale(unit.input_weight[tile.first + t], h, rows);
      if (context_.gated()) nn::Scale(unit.input_weight[tile.first + t], unit.up_out + at, rows);
    }
    context_.Activate(
        {.gate = h, .up = context_.gated() ? unit.up_out + at : nullptr, .n = rows, .out = h});
    if (f % kernels::kActivationBlock == 0) nn::QuantizeRange(context_.ops, *unit.h, at, rows);
  }
}

float* ExpertComputer::MultiplyDown(const ExpertUnit& unit, Tile tile, int column, int columns,
                                    int thread) {
  float* down = scratch_[thread].down.data();
  const int f = unit.neurons(), panel = column / kernels::kPanelRows;
  context_.ops.gemm({.weights = unit.down.weight,
                     .activations = unit.h->view(nn::Offset(unit.first + tile.first, f), f),
                     .tokens = tile.count,
                     .out = down - column,
                     .out_stride = columns,
                     .panel_begin = panel,
                     .panel_end = panel + kernels::NumPanels(columns),
                     .prefetch_bytes = context_.multiplier.prefetch_bytes()});
  for (int i = 0; unit.down.bias != nullptr && i < tile.count; ++i)
    context_.ops.add(down + nn::Offset(i, columns), unit.down.bias + column, columns);
  return down;
}

}  // namespace thermocline::ffn
