#include "engine/placement/costs.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/placement/numbers.h"

namespace thermocline::placement {
namespace {

std::vector<Prefix> PrefixSums(const LayerShape& shape, int batch) {
  const std::size_t n = shape.neurons(), step = batch;
  std::vector<Prefix> out = {Prefix{}};
  out.reserve(n / step + 2);
  Prefix sum;
  for (std::size_t begin = 0; begin < n; begin += step) {
    const std::size_t end = std::min(n, begin + step);
    double active = 0, decided = 0;
    for (std::size_t i = begin; i < end; ++i) {
      active += shape.frequency[i];
      decided += std::min(1.0, shape.overprediction * shape.frequency[i]);
    }
    sum.neurons = end;
    const double all = D(end - begin);
    sum.active += shape.reading == Reading::kDense ? all : active;
    sum.decided += shape.reading == Reading::kPredicted ? decided
                   : shape.reading == Reading::kChosen  ? active
                                                        : all;
    out.push_back(sum);
  }
  return out;
}

Prefix Range(const Prefix& from, const Prefix& to) {
  return {to.neurons - from.neurons, to.decided - from.decided, to.active - from.active};
}

}  // namespace

CostTables::CostTables(const Problem& problem, bool deciding_held)
    : problem_(problem), deciding_held_(deciding_held) {
  for (const LayerShape& shape : problem.layers) AddLayer(shape);
  for (const Side side : {kCold, kHot}) {
    if (side == kCold || HasHot())
      head_s_[side] = D(problem.head_bytes) / ProcessorOf(side).dense_bytes_per_s;
  }
}

double CostTables::SideTime(const LayerShape& shape, Side side, const Prefix& range) const {
  const Processor& p = ProcessorOf(side);
  const double n = D(range.neurons), deciding = D(shape.deciding_bytes), rest = D(shape.rest_bytes);
  const double rows = range.active * (rest / p.rows_bytes_per_s + p.row_s);
  switch (shape.reading) {
    case Reading::kDense:
      return n * (deciding + rest) / p.whole_rate();
    case Reading::kExact:
      return n * deciding / p.deciding_rate() + rows;
    case Reading::kChosen:
      return range.active * (deciding + rest) / p.whole_rate();
    case Reading::kPredicted:
      break;
  }
  return n * D(shape.predictor_bytes) / p.predictor_bytes_per_s +
         range.decided * (deciding / p.rows_bytes_per_s + p.row_s) + rows;
}

double CostTables::HomeTime(const LayerShape& shape, Side side) const {
  const Processor& p = ProcessorOf(side);
  return D(shape.home_bytes + shape.kv_bytes) / p.dense_bytes_per_s + p.layer_s;
}

double CostTables::FlashTime(const LayerShape& shape, const Prefix& range) const {
  const Machine& machine = problem_.machine;
  if (range.neurons == 0 || machine.flash_reads_per_s == 0) return 0;
  if (Held(shape)) return range.active * machine.FlashReadTime(D(shape.rest_bytes));
  return range.decided * machine.FlashReadTime(D(shape.row_bytes()));
}

LayerPlacement CostTables::Times(std::size_t layer, Side home, Choice choice) const {
  const LayerShape& shape = problem_.layers[layer];
  const std::vector<Prefix>& prefix = prefixes_[layer];
  const Prefix &hot = prefix[choice.hot], &all = prefix.back();
  const Prefix& kept = IsUnified() ? hot : prefix[choice.end];
  const Prefix by_hot = IsUnified() ? all : hot, by_cold = Range(by_hot, all);
  LayerPlacement out{.home_hot = home == kHot,
                     .hot = hot.neurons,
                     .memory = kept.neurons - hot.neurons,
                     .flash = all.neurons - kept.neurons,
                     .home_s = HomeTime(shape, home),
                     .flash_s = FlashTime(shape, Range(kept, all)),
                     .active = all.active,
                     .active_hot = by_hot.active};
  if (by_hot.neurons > 0)
    out.hot_s = SideTime(shape, kHot, by_hot) + (home == kHot ? 0 : ProcessorOf(kHot).layer_s);
  if (by_cold.neurons > 0)
    out.cold_s = SideTime(shape, kCold, by_cold) + (home == kCold ? 0 : ProcessorOf(kCold).layer_s);
  if (home == kHot ? by_cold.neurons > 0 : by_hot.neurons > 0)
    out.sync_s =
        2 * problem_.machine.sync_s + D(problem_.sync_bytes) / problem_.machine.link_bytes_per_s;
  return out;
}

void CostTables::AddLayer(const LayerShape& shape) {
  const std::size_t at = layers_.size();
  prefixes_.push_back(PrefixSums(shape, problem_.batch));
  LayerCosts& out = layers_.emplace_back();
  for (const Prefix& prefix : prefixes_[at]) out.neurons.push_back(prefix.neurons);
  const int n = out.batches();
  const bool flash = problem_.machine.flash_reads_per_s > 0;
  out.hot_max = HasHot() ? n : 0;
  out.end_min = flash && !IsUnified() ? 0 : n;
  for (int i = 0; i <= n; ++i) {
    for (const Side home : {kCold, kHot}) {
      if (i > out.hot_max || (home == kHot && !HasHot())) continue;
      LayerPlacement times = Times(at, home, {i, n});
      out.time[home].push_back(times.token_s());
    }
    out.flash.push_back(IsUnified() ? 0 : Times(at, kCold, {0, i}).flash_s);
  }
  const std::int64_t kept = shape.row_bytes() + shape.predictor_bytes;
  const std::int64_t on_flash = shape.predictor_bytes + (Held(shape) ? shape.deciding_bytes : 0);
  out.home_bytes = shape.home_bytes + shape.kv_bytes;
  out.hot_neuron = kept;
  if (IsUnified()) {
    out.hot_min = flash ? 0 : n;
    out.hot_neuron = kept - on_flash;
    out.hot_base = on_flash * shape.neurons();
  } else {
    out.memory_neuron = kept;
    out.end_neuron = kept - on_flash;
    out.memory_base = on_flash * shape.neurons();
  }
}

double CostTables::SwitchTime(int hot_homes, Side head) const {
  const auto layers = base::IntSize(layers_);
  const Side last = hot_homes == layers ? kHot : kCold;
  const int switches = (hot_homes > 0 && hot_homes < layers ? 1 : 0) + (last != head ? 1 : 0);
  return switches * problem_.machine.sync_s;
}

Placement CostTables::Describe(int hot_homes, Side head, const std::vector<Choice>& choices) const {
  CHECK_EQ(choices.size(), layers_.size());
  Placement out{.head_hot = head == kHot, .deciding_held = deciding_held_};
  double active = 0, active_hot = 0;
  for (int l = 0; l < base::IntSize(layers_); ++l) {
    const Side home = l < hot_homes ? kHot : kCold;
    const LayerPlacement& layer = out.layers.emplace_back(Times(l, home, choices[l]));
    const LayerCosts& costs = layers_[l];
    out.hot_bytes += costs.hot_base + costs.HotBytes(choices[l].hot);
    out.memory_bytes += costs.memory_base + costs.MemoryBytes(choices[l].hot, choices[l].end);
    (home == kHot ? out.hot_bytes : out.memory_bytes) += costs.home_bytes;
    out.flash_bytes += layer.flash * problem_.layers[l].row_bytes();
    out.token_s += layer.token_s();
    active += layer.active;
    active_hot += layer.active_hot;
  }
  (head == kHot ? out.hot_bytes : out.memory_bytes) += problem_.head_bytes;
  if (out.hot_bytes > 0) out.hot_bytes += problem_.hot_fixed_bytes;
  (IsUnified() ? out.hot_bytes : out.memory_bytes) += problem_.memory_fixed_bytes;
  out.head_s = head_s_[head];
  out.switch_s = SwitchTime(hot_homes, head);
  out.token_s += out.head_s + out.switch_s;
  out.load_share = active > 0 ? active_hot / active : 0;
  return out;
}

}  // namespace thermocline::placement
