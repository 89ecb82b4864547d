#include "engine/placement/relaxation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/index.h"
#include "engine/placement/numbers.h"

namespace thermocline::placement {
namespace {

constexpr int kStepsMax = 200;
constexpr double kBoundPrecision = 1e-14;            // relative; the bound is valid at any price
constexpr double kPriceGrowth = 8, kPriceMax = 1e9;  // times price_scale_

}  // namespace

int Relaxation::Hull::Least(double price) const {
  const auto first = std::lower_bound(slope.begin(), slope.end(), -price);
  return at[first - slope.begin()];
}

Relaxation::Hull Relaxation::LowerHull(const std::vector<std::int64_t>& x,
                                       const std::vector<double>& y, int first, int last) {
  Hull hull;
  const auto slope = [&](int a, int b) { return (y[S(b)] - y[S(a)]) / D(x[S(b)] - x[S(a)]); };
  for (int i = first; i <= last; ++i) {
    while (!hull.slope.empty() && slope(hull.at.back(), i) <= hull.slope.back()) {
      hull.at.pop_back();
      hull.slope.pop_back();
    }
    if (!hull.at.empty()) hull.slope.push_back(slope(hull.at.back(), i));
    hull.at.push_back(i);
  }
  return hull;
}

Relaxation::Relaxation(const CostTables& tables) : layers_(tables.layers()) {
  double seconds = 0, bytes = 1;
  for (const LayerCosts& layer : layers_) {
    std::array<Hull, 2>& hulls = time_.emplace_back();
    for (const Side side : {kCold, kHot}) {
      if (!layer.time[side].empty())
        hulls[side] = LowerHull(layer.neurons, layer.time[side], layer.hot_min, layer.hot_max);
    }
    flash_.push_back(LowerHull(layer.neurons, layer.flash, layer.end_min, layer.batches()));
    seconds += layer.time[kCold][0];
    double time_max = 0;
    for (const std::vector<double>& times : layer.time) {
      for (const double time : times) time_max = std::max(time_max, time);
    }
    seconds_max_ += time_max + layer.flash[S(layer.end_min)];
    bytes += D(layer.HotBytes(layer.batches()));
  }
  price_scale_ = seconds / bytes;
}

Relaxation::LayerBound Relaxation::OfLayer(std::size_t l, Side side, const Prices& prices) const {
  const LayerCosts& layer = layers_[l];
  const double hot_price =
      prices.hot * D(layer.hot_neuron) - prices.memory * D(layer.memory_neuron);
  const double end_price = prices.memory * D(layer.end_neuron);
  const int hot = time_[l][side].Least(hot_price), end = flash_[l].Least(end_price);
  if (hot > end) return OfOverlap(layer, side, prices);
  return {layer.time[side][S(hot)] + hot_price * D(layer.neurons[S(hot)]) + layer.flash[S(end)] +
              end_price * D(layer.neurons[S(end)]),
          layer.HotBytes(hot),
          layer.MemoryBytes(hot, end),
          {hot, end}};
}

// Tries all pairs, because the best choices for hot and for flash alone contradict each other.
Relaxation::LayerBound Relaxation::OfOverlap(const LayerCosts& layer, Side side,
                                             const Prices& prices) const {
  LayerBound best{.value = std::numeric_limits<double>::infinity()};
  double end_value = best.value;
  int end = layer.batches();
  for (int hot = layer.batches(); hot >= layer.hot_min; --hot) {
    if (hot >= layer.end_min) {
      const double value =
          layer.flash[S(hot)] + prices.memory * D(layer.end_neuron * layer.neurons[S(hot)]);
      if (value < end_value) end_value = value, end = hot;
    }
    if (hot > layer.hot_max) continue;
    const double value = layer.time[side][S(hot)] + end_value +
                         prices.hot * D(layer.HotBytes(hot)) -
                         prices.memory * D(layer.memory_neuron * layer.neurons[S(hot)]);
    if (value < best.value)
      best = {value, layer.HotBytes(hot), layer.MemoryBytes(hot, end), {hot, end}};
  }
  return best;
}

Bound Relaxation::At(const Case& which, const Prices& prices) const {
  Bound out{.value = which.fixed_s,
            .hot_slope = -D(which.hot_bytes),
            .memory_slope = -D(which.memory_bytes)};
  for (int l = 0; l < base::IntSize(layers_); ++l) {
    const Side side = l < which.hot_homes ? kHot : kCold;
    const LayerBound layer = OfLayer(l, side, prices);
    out.value += layer.value;
    out.hot_slope += D(layer.hot);
    out.memory_slope += D(layer.memory);
  }
  out.value -= prices.hot * D(which.hot_bytes) + prices.memory * D(which.memory_bytes);
  return out;
}

// The bound is concave and piecewise linear: the next price is where the tangents at the two prices
// around the maximum meet.
Relaxation::Peak Relaxation::BestHotPrice(const Case& which, double memory_price) const {
  const auto at = [&](double price) { return At(which, {price, memory_price}); };
  double low = 0, high = price_scale_ + 2 * memory_price;
  Bound a = at(low);
  if (a.hot_slope <= 0) return {a, low};
  Bound b = at(high);
  while (b.hot_slope > 0 && high < kPriceMax * (price_scale_ + memory_price)) {
    low = high, a = b;
    b = at(high *= kPriceGrowth);
  }
  Peak best = b.value > a.value ? Peak{b, high} : Peak{a, low};
  for (int step = 0; step < kStepsMax && b.hot_slope <= 0; ++step) {
    const double bend = a.hot_slope - b.hot_slope;
    const double price = (b.value - a.value + a.hot_slope * low - b.hot_slope * high) / bend;
    if (!(price > low && price < high)) break;
    const double line = a.value + a.hot_slope * (price - low);
    const Bound c = at(price);
    if (c.value > best.bound.value) best = {c, price};
    if (line - c.value <= kBoundPrecision * std::abs(line) || c.hot_slope == 0) break;
    if (c.hot_slope > 0) {
      low = price, a = c;
    } else {
      high = price, b = c;
    }
  }
  // Uses the combination of both tangents that is level in the hot price.
  if (b.hot_slope <= 0) {
    const double share = -b.hot_slope / (a.hot_slope - b.hot_slope);
    best.bound.memory_slope = share * a.memory_slope + (1 - share) * b.memory_slope;
  }
  return best;
}

BestBound Relaxation::Best(const Case& which, double enough) const {
  double low = 0, high = price_scale_;
  Peak a = BestHotPrice(which, low);
  const auto result = [](const Peak& peak, double memory_price, bool feasible) {
    return BestBound{peak.bound.value, {peak.price, memory_price}, feasible};
  };
  if (a.bound.memory_slope <= 0 || a.bound.value > enough) return result(a, low, true);
  Peak b = BestHotPrice(which, high);
  while (b.bound.memory_slope > 0) {
    if (b.bound.value > enough) return result(b, high, true);
    if (b.bound.value > which.fixed_s + seconds_max_) return result(b, high, false);
    if (high > kPriceMax * price_scale_) return result(b, high, true);
    low = high, a = b;
    b = BestHotPrice(which, high *= kPriceGrowth);
  }
  BestBound best = a.bound.value > b.bound.value ? result(a, low, true) : result(b, high, true);
  for (int step = 0; step < kStepsMax; ++step) {
    const double bend = a.bound.memory_slope - b.bound.memory_slope;
    const double price =
        (b.bound.value - a.bound.value + a.bound.memory_slope * low - b.bound.memory_slope * high) /
        bend;
    if (!(price > low && price < high)) break;
    const double line = a.bound.value + a.bound.memory_slope * (price - low);
    const Peak c = BestHotPrice(which, price);
    if (c.bound.value > best.value) best = result(c, price, true);
    if (line - c.bound.value <= kBoundPrecision * std::abs(line) || best.value > enough) break;
    if (c.bound.memory_slope > 0) {
      low = price, a = c;
    } else {
      high = price, b = c;
    }
  }
  return best;
}

}  // namespace thermocline::placement
