#include "engine/placement/repair.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/placement/numbers.h"

namespace thermocline::placement {
namespace {

constexpr int kRaises = 40, kImprovements = 300;
constexpr std::size_t kChoicesOfSmall = 400;
constexpr int kRaisesThatFit = 8;      // the fastest of these is taken
constexpr double kLargerFirst = 1e-6;  // among equal gains, so that fewer changes are needed
constexpr double kLeastGain = 1e-12;   // relative, of the token

// A placement whose layers are being changed.
class Draft {
 public:
  Draft(const std::vector<LayerCosts>& layers, const Relaxation& relaxation, const Case& which,
        const Prices& prices)
      : layers_(layers),
        which_(which),
        prices_(prices),
        out_{.seconds = which.fixed_s, .choices = {}} {
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const Side side = SideOf(l);
      const Relaxation::LayerBound layer = relaxation.OfLayer(l, side, prices);
      out_.choices.push_back(layer.choice);
      out_.seconds +=
          layers[l].time[side][S(layer.choice.hot)] + layers[l].flash[S(layer.choice.end)];
      hot_ += layer.hot, memory_ += layer.memory;
    }
  }

  bool HotFits() const { return hot_ <= which_.hot_bytes; }
  bool Fits() const { return HotFits() && memory_ <= which_.memory_bytes; }
  // Makes the change of one layer that gains most and fits or, while RAM is exceeded, reduces it.
  // Returns false if there is none.
  bool Improve();
  // The same for changes of one or two layers: if batches are few, a layer often gains only the
  // memory that another gives up.
  bool ImproveTwo();
  const Repaired& out() const { return out_; }

 private:
  struct Change {
    double gain = -kInfinity, seconds = 0;  // gain: minus the price of the memory it takes
    std::size_t layer = 0;
    CostTables::Choice to;
    std::int64_t hot = 0, memory = 0;  // additional bytes
  };
  Side SideOf(std::size_t layer) const {
    return static_cast<int>(layer) < which_.hot_homes ? kHot : kCold;
  }
  Change To(std::size_t layer, CostTables::Choice to) const;
  void Consider(std::size_t layer, CostTables::Choice to, Change& best) const;
  void Apply(const Change& change);
  // All changes of each layer to any of its choices.
  std::vector<Change> AllChanges() const;
  // Bytes that exceed the available memory.
  std::int64_t Excess(std::int64_t more_hot, std::int64_t more_memory) const {
    return std::max<std::int64_t>(0, hot_ + more_hot - which_.hot_bytes) +
           std::max<std::int64_t>(0, memory_ + more_memory - which_.memory_bytes);
  }

  const std::vector<LayerCosts>& layers_;
  const Case& which_;
  const Prices prices_;
  std::int64_t hot_ = 0, memory_ = 0;
  Repaired out_;
};

Draft::Change Draft::To(std::size_t l, CostTables::Choice to) const {
  const LayerCosts& layer = layers_[l];
  const std::vector<double>& time = layer.time[SideOf(l)];
  const CostTables::Choice now = out_.choices[l];
  return {.seconds =
              time[S(now.hot)] + layer.flash[S(now.end)] - time[S(to.hot)] - layer.flash[S(to.end)],
          .layer = l,
          .to = to,
          .hot = layer.HotBytes(to.hot) - layer.HotBytes(now.hot),
          .memory = layer.MemoryBytes(to.hot, to.end) - layer.MemoryBytes(now.hot, now.end)};
}

void Draft::Consider(std::size_t l, CostTables::Choice to, Change& best) const {
  Change change = To(l, to);
  change.gain = (1 + kLargerFirst) * change.seconds - prices_.hot * D(change.hot) -
                prices_.memory * D(change.memory);
  if (change.gain <= best.gain || hot_ + change.hot > which_.hot_bytes) return;
  const bool over = memory_ > which_.memory_bytes;
  if (over ? change.memory >= 0
           : change.seconds <= kLeastGain * out_.seconds ||
                 memory_ + change.memory > which_.memory_bytes)
    return;
  best = change;
}

void Draft::Apply(const Change& change) {
  out_.choices[change.layer] = change.to;
  out_.seconds -= change.seconds;
  hot_ += change.hot, memory_ += change.memory;
}

bool Draft::Improve() {
  Change best;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const LayerCosts& layer = layers_[l];
    const CostTables::Choice now = out_.choices[l];
    for (int i = layer.hot_min; i <= layer.hot_max; ++i)
      Consider(l, {i, std::max({i, now.end, layer.end_min})}, best);
    for (int i = std::max(now.hot, layer.end_min); i <= layer.batches(); ++i)
      Consider(l, {now.hot, i}, best);
  }
  if (best.gain == -kInfinity) return false;
  Apply(best);
  return true;
}

std::vector<Draft::Change> Draft::AllChanges() const {
  std::vector<Change> changes;
  for (std::size_t l = 0; l < layers_.size(); ++l)
    for (int hot = layers_[l].hot_min; hot <= layers_[l].hot_max; ++hot)
      for (int end = std::max(hot, layers_[l].end_min); end <= layers_[l].batches(); ++end)
        changes.push_back(To(l, {hot, end}));
  return changes;
}

bool Draft::ImproveTwo() {
  const std::vector<Change> changes = AllChanges();
  const Change* best[2] = {};
  std::int64_t least_excess = Excess(0, 0);
  double most = kLeastGain * out_.seconds;
  for (const Change& a : changes) {
    for (const Change& b : changes) {
      if (a.layer > b.layer || (a.layer == b.layer && &a != &b)) continue;
      const bool two = &a != &b;
      const std::int64_t excess =
          Excess(a.hot + (two ? b.hot : 0), a.memory + (two ? b.memory : 0));
      const double seconds = a.seconds + (two ? b.seconds : 0);
      if (excess > least_excess || (excess == least_excess && seconds <= most)) continue;
      least_excess = excess, most = seconds;
      best[0] = &a, best[1] = two ? &b : nullptr;
    }
  }
  if (best[0] == nullptr) return false;
  Apply(*best[0]);
  if (best[1] != nullptr) Apply(*best[1]);
  return true;
}

// True if there are few enough choices to try all pairs.
bool IsSmall(const std::vector<LayerCosts>& layers) {
  std::size_t choices = 0;
  for (const LayerCosts& layer : layers)
    choices += S(layer.hot_max - layer.hot_min + 1) * S(layer.batches() + 1);
  return choices <= kChoicesOfSmall;
}

}  // namespace

std::optional<Repaired> Repair(const CostTables& tables, const Relaxation& relaxation,
                               const Case& which, const Prices& prices) {
  const bool small = IsSmall(tables.layers());
  const int fits_wanted = small ? kRaises : 1;
  std::optional<Repaired> best;
  for (int raise = 0, fit = 0; raise < kRaises && fit < fits_wanted; ++raise) {
    const double factor = 1 + 1e-9 * std::pow(2, raise);
    Draft draft(tables.layers(), relaxation, which,
                {.hot = prices.hot * factor, .memory = prices.memory * factor});
    if (!small && !draft.HotFits()) continue;
    for (int i = 0; i < kImprovements && draft.HotFits() && draft.Improve(); ++i) continue;
    for (int i = 0; i < kImprovements && small && draft.ImproveTwo(); ++i) continue;
    if (!draft.Fits()) continue;
    ++fit;
    if (!best.has_value() || draft.out().seconds < best->seconds) best = draft.out();
  }
  return best;
}

}  // namespace thermocline::placement
