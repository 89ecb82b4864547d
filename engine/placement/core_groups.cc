// What each layer may choose within a window.
#include <algorithm>
#include <limits>
#include <tuple>

#include "engine/placement/core.h"
#include "engine/placement/numbers.h"
#include "engine/placement/unbeaten.h"

namespace thermocline::placement {

// Hot neurons first, then those on flash: behind the last group with hot neurons the hot memory no
// longer sets states apart.
std::vector<Core::Group> Core::MakeGroups(double window, bool& complete) const {
  std::vector<Group> groups, ends;
  complete = true;
  for (std::size_t l = 0; l < layers_.size(); ++l) AddLayer(l, window, groups, ends, complete);
  for (Group& group : ends) {
    if (group.options.size() == 1 && !groups.empty()) {
      // Nothing to choose: it goes along with the layer's other group.
      for (Group& other : groups) {
        if (other.layer != group.layer) continue;
        const Option& only = group.options[0];
        for (Option& option : other.options) {
          option.seconds += only.seconds;
          option.loss += only.loss;
          option.memory += only.memory;
          option.batch_end = only.batch_end;
        }
      }
      continue;
    }
    groups.push_back(std::move(group));
  }
  for (Group& group : groups) Summarize(group);
  return groups;
}

void Core::AddLayer(std::size_t l, double window, std::vector<Group>& groups,
                    std::vector<Group>& end_groups, bool& complete) const {
  const LayerCosts& layer = layers_[l];
  const Prices& prices = bound_.prices;
  const Side side = static_cast<int>(l) < which_.hot_homes ? kHot : kCold;
  const double least = relaxation_.OfLayer(l, side, prices).value;
  const double hot_price =
      prices.hot * D(layer.hot_neuron) - prices.memory * D(layer.memory_neuron);
  const double end_price = prices.memory * D(layer.end_neuron);
  const auto hot_value = [&](int i) {
    return layer.time[side][S(i)] + hot_price * D(layer.neurons[S(i)]);
  };
  const auto end_value = [&](int i) {
    return layer.flash[S(i)] + end_price * D(layer.neurons[S(i)]);
  };
  const int n = layer.batches();
  // The best partner of each choice: the least of the ends from a count on, of the hots up to one.
  std::vector<double> best_end(S(n + 1)), best_hot(S(n + 1), kInfinity);
  double best = kInfinity;
  for (int i = n; i >= 0; --i)
    best_end[S(i)] = best = i >= layer.end_min ? std::min(best, end_value(i)) : best;
  best = kInfinity;
  for (int i = 0; i <= n; ++i)
    best_hot[S(i)] = best =
        i >= layer.hot_min && i <= layer.hot_max ? std::min(best, hot_value(i)) : best;
  std::vector<int> hots, ends;
  for (int i = layer.hot_min; i <= layer.hot_max; ++i) {
    if (hot_value(i) + best_end[S(i)] - least <= window)
      hots.push_back(i);
    else
      complete = false;
  }
  for (int i = layer.end_min; i <= n; ++i) {
    if (best_hot[S(i)] + end_value(i) - least <= window)
      ends.push_back(i);
    else
      complete = complete && best_hot[S(i)] == kInfinity;
  }
  Group& group = groups.emplace_back(Group{.layer = l});
  if (hots.empty() || ends.empty()) return;
  if (hots.back() > ends.front()) return AddPairs(l, hots, ends, least, window, group, complete);
  double least_hot = kInfinity, least_end = kInfinity;
  for (const int i : hots) least_hot = std::min(least_hot, hot_value(i));
  for (const int i : ends) least_end = std::min(least_end, end_value(i));
  for (const int i : hots)
    group.options.push_back({.seconds = layer.time[side][S(i)],
                             .loss = hot_value(i) - least_hot,
                             .hot = layer.HotBytes(i),
                             .memory = layer.MemoryBytes(i, 0),
                             .batch_hot = i});
  Group& end_group = end_groups.emplace_back(Group{.layer = l});
  for (const int i : ends)
    end_group.options.push_back({.seconds = layer.flash[S(i)],
                                 .loss = end_value(i) - least_end,
                                 .memory = layer.MemoryBytes(0, i),
                                 .batch_end = i});
}

void Core::AddPairs(std::size_t l, const std::vector<int>& hots, const std::vector<int>& ends,
                    double least, double window, Group& group, bool& complete) const {
  const LayerCosts& layer = layers_[l];
  const Side side = static_cast<int>(l) < which_.hot_homes ? kHot : kCold;
  for (const int hot : hots) {
    for (const int end : ends) {
      if (hot > end) continue;
      Option option{.seconds = layer.time[side][S(hot)] + layer.flash[S(end)],
                    .hot = layer.HotBytes(hot),
                    .memory = layer.MemoryBytes(hot, end),
                    .batch_hot = hot,
                    .batch_end = end};
      option.loss = option.seconds + bound_.prices.hot * D(option.hot) +
                    bound_.prices.memory * D(option.memory) - least;
      if (option.loss <= window)
        group.options.push_back(option);
      else
        complete = false;
    }
  }
}

// Without the options that another beats in time and in both memories, and with their extremes.
void Core::Summarize(Group& group) {
  if (group.options.empty()) return;
  std::sort(group.options.begin(), group.options.end(), [](const Option& a, const Option& b) {
    return std::tie(a.hot, a.memory, a.seconds, a.batch_hot, a.batch_end) <
           std::tie(b.hot, b.memory, b.seconds, b.batch_hot, b.batch_end);
  });
  KeepUnbeaten(group.options);
  std::stable_sort(group.options.begin(), group.options.end(),
                   [](const Option& a, const Option& b) { return a.loss < b.loss; });
  const Option& first = group.options.front();
  group.hot_min = group.hot_max = first.hot;
  group.memory_min = group.memory_max = first.memory;
  for (const Option& option : group.options) {
    group.hot_min = std::min(group.hot_min, option.hot);
    group.hot_max = std::max(group.hot_max, option.hot);
    group.memory_min = std::min(group.memory_min, option.memory);
    group.memory_max = std::max(group.memory_max, option.memory);
  }
}

}  // namespace thermocline::placement
