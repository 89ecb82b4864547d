// A good placement to begin with.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/placement/core.h"
#include "engine/placement/numbers.h"

namespace thermocline::placement {

bool Core::Improve(Best& best, std::int64_t& hot, std::int64_t& memory) const {
  constexpr double kLargerFirst = 1e-6;
  const double least = 1e-12 * best.seconds;
  double gain = -kInfinity, seconds = 0;
  std::size_t changed = layers_.size();
  CostTables::Choice change;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const LayerCosts& layer = layers_[l];
    const std::vector<double>& time =
        layer.time[static_cast<int>(l) < which_.hot_homes ? kHot : kCold];
    const CostTables::Choice now = best.choices[l];
    const auto consider = [&](CostTables::Choice to) {
      const double less =
          time[S(now.hot)] + layer.flash[S(now.end)] - time[S(to.hot)] - layer.flash[S(to.end)];
      const std::int64_t more_hot = layer.HotBytes(to.hot) - layer.HotBytes(now.hot);
      const std::int64_t more_memory =
          layer.MemoryBytes(to.hot, to.end) - layer.MemoryBytes(now.hot, now.end);
      // Less the price of what it takes from other layers.
      // Of equal gains, the larger change: fewer are needed.
      const double gains = kLargerFirst * less + less - bound_.prices.hot * D(more_hot) -
                           bound_.prices.memory * D(more_memory);
      const bool over = memory > which_.memory_bytes;  // first of all it must fit
      if (gains <= gain || hot + more_hot > which_.hot_bytes ||
          (over ? more_memory >= 0 : less <= least || memory + more_memory > which_.memory_bytes))
        return;
      gain = gains, seconds = less, changed = l, change = to;
    };
    for (int i = layer.hot_min; i <= layer.hot_max; ++i)
      consider({i, std::max(i, std::max(now.end, layer.end_min))});
    for (int i = std::max(now.hot, layer.end_min); i <= layer.batches(); ++i)
      consider({now.hot, i});
  }
  if (changed == layers_.size()) return false;
  const LayerCosts& layer = layers_[changed];
  CostTables::Choice& now = best.choices[changed];
  hot += layer.HotBytes(change.hot) - layer.HotBytes(now.hot);
  memory += layer.MemoryBytes(change.hot, change.end) - layer.MemoryBytes(now.hot, now.end);
  now = change;
  best.seconds -= seconds;
  return true;
}

std::optional<Core::Best> Core::Guess() const {
  constexpr int kRaises = 40, kImprovements = 300;
  for (int raise = 0; raise < kRaises; ++raise) {
    const double factor = 1 + 1e-9 * std::pow(2, raise);
    const Prices prices{bound_.prices.hot * factor, bound_.prices.memory * factor};
    Best best{.seconds = which_.fixed_s, .choices = {}};
    std::int64_t hot = 0, memory = 0;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const Side side = static_cast<int>(l) < which_.hot_homes ? kHot : kCold;
      const Relaxation::LayerBound layer = relaxation_.OfLayer(l, side, prices);
      best.choices.push_back(layer.choice);
      best.seconds +=
          layers_[l].time[side][S(layer.choice.hot)] + layers_[l].flash[S(layer.choice.end)];
      hot += layer.hot, memory += layer.memory;
    }
    if (hot > which_.hot_bytes) continue;
    for (int i = 0; i < kImprovements && Improve(best, hot, memory); ++i) {
    }
    if (memory <= which_.memory_bytes) return best;
  }
  return std::nullopt;
}

}  // namespace thermocline::placement
