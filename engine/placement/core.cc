#include "engine/placement/core.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "engine/placement/numbers.h"
#include "engine/placement/unbeaten.h"

namespace thermocline::placement {

std::vector<Core::Rest> Core::Rests(const std::vector<Group>& groups) {
  std::vector<Rest> rests(groups.size() + 1);
  for (std::size_t i = groups.size(); i-- > 0;) {
    const Group& group = groups[i];
    Rest rest = rests[i + 1];
    rest.hot_min += group.hot_min, rest.hot_max += group.hot_max;
    rest.memory_min += group.memory_min, rest.memory_max += group.memory_max;
    rests[i] = rest;
  }
  return rests;
}

// What becomes of a state with an option: whether it still fits, and whether its losses, with the
// memory that can no longer be used, stay within the window.
inline Core::Step Core::Add(const State& state, const Option& option, const Limits& limits,
                            State& next) const {
  next.loss = state.loss + option.loss;
  if (next.loss > limits.window) return Step::kNoneLeft;
  next.hot = state.hot + option.hot;
  next.memory = state.memory + option.memory;
  if (next.hot > limits.hot_most || next.memory > limits.memory_most) return Step::kTooLarge;
  const std::int64_t unused_hot = std::max<std::int64_t>(0, limits.hot_least - next.hot);
  const std::int64_t unused_memory = std::max<std::int64_t>(0, limits.memory_least - next.memory);
  if (next.loss + bound_.prices.hot * D(unused_hot) + bound_.prices.memory * D(unused_memory) >
      limits.window)
    return Step::kLoses;
  next.seconds = state.seconds + option.seconds;
  return Step::kFits;
}

// All states with all options that are left.
std::vector<Core::State> Core::Extend(const std::vector<State>& states, const Group& group,
                                      const Limits& limits, Outcome& outcome) const {
  constexpr std::int64_t kSortedCost = 10;  // of a state that is sorted, over one that has a place
  std::vector<State> out;
  for (std::size_t s = 0; s < states.size(); ++s) {
    outcome.too_large = outcome.nodes > limits.nodes_max;
    if (outcome.too_large) return {};
    for (std::size_t o = 0; o < group.options.size(); ++o) {
      State next;
      const Step step = Add(states[s], group.options[o], limits, next);
      if (step == Step::kNoneLeft) outcome.complete = false;
      if (step == Step::kNoneLeft) break;
      if (step == Step::kLoses) outcome.complete = false;
      if (step != Step::kFits) continue;
      outcome.nodes += kSortedCost;
      next.parent = static_cast<std::int32_t>(s), next.option = static_cast<std::int32_t>(o);
      // A memory that has no price and cannot overflow any more does not set states apart.
      if (bound_.prices.hot == 0) next.hot = std::max(next.hot, limits.hot_least);
      if (bound_.prices.memory == 0) next.memory = std::max(next.memory, limits.memory_least);
      out.push_back(next);
    }
  }
  DropBeaten(out);
  return out;
}

// Leaves the states that no other beats or equals in time and both memories.
void Core::DropBeaten(std::vector<State>& states) {
  std::sort(states.begin(), states.end(), [](const State& a, const State& b) {
    return std::tie(a.hot, a.memory, a.seconds, a.parent, a.option) <
           std::tie(b.hot, b.memory, b.seconds, b.parent, b.option);
  });
  KeepUnbeaten(states);
}

// Where one number tells the states apart, there is a place for each of its values.
std::optional<Core::Line> Core::LineOf(const std::vector<State>& states, const Group& group,
                                       const Rest& rest) const {
  if (states.empty() || group.options.empty()) return std::nullopt;
  const State& first = states.front();
  const Option& option = group.options.front();
  Line line{.unit = std::max<std::int64_t>(1, which_.hot_unit)};
  bool same_hot = true, same_sum = true, memory_fits = bound_.prices.memory == 0;
  for (const State& state : states) {
    same_hot = same_hot && state.hot == first.hot;
    same_sum = same_sum && state.hot + state.memory == first.hot + first.memory;
    memory_fits =
        memory_fits && state.memory + group.memory_max + rest.memory_max <= which_.memory_bytes;
  }
  for (const Option& other : group.options) {
    same_hot = same_hot && other.hot == option.hot;
    same_sum = same_sum && other.hot + other.memory == option.hot + option.memory;
  }
  line.memory_fits = memory_fits;
  line.by_memory = !memory_fits && same_hot;
  if (!memory_fits && !same_hot && !same_sum) return std::nullopt;
  line.less_is_better = memory_fits || same_hot;
  const auto by =
      std::minmax_element(states.begin(), states.end(),
                          [&](const State& x, const State& y) { return line.Of(x) < line.Of(y); });
  if (line.by_memory) line.unit = std::max<std::int64_t>(1, which_.memory_unit);
  line.first = line.Of(*by.first) + (line.by_memory ? group.memory_min : group.hot_min);
  line.last = line.Of(*by.second) + (line.by_memory ? group.memory_max : group.hot_max);
  // More places than that take longer to clear than the states to sort.
  const auto places_max =
      static_cast<std::int64_t>(4 * states.size() * group.options.size() + 1024);
  if ((line.last - line.first) / line.unit >= places_max) return std::nullopt;
  return line;
}

// As Extend and DropBeaten.
std::vector<Core::State> Core::ExtendLine(const Line& line, const std::vector<State>& states,
                                          const Group& group, const Limits& limits,
                                          Outcome& outcome) const {
  std::vector<State> places(static_cast<std::size_t>((line.last - line.first) / line.unit) + 1,
                            State{.seconds = kInfinity});
  for (std::size_t s = 0; s < states.size(); ++s) {
    outcome.too_large = outcome.nodes > limits.nodes_max;
    if (outcome.too_large) return {};
    for (std::size_t o = 0; o < group.options.size(); ++o) {
      State next;
      const Step step = Add(states[s], group.options[o], limits, next);
      if (step == Step::kNoneLeft) outcome.complete = false;
      if (step == Step::kNoneLeft) break;
      if (step == Step::kLoses) outcome.complete = false;
      if (step != Step::kFits) continue;
      ++outcome.nodes;
      State& place = places[(line.Of(next) - line.first) / line.unit];
      if (next.seconds >= place.seconds) continue;
      place = next;
      place.parent = static_cast<std::int32_t>(s);
      place.option = static_cast<std::int32_t>(o);
    }
  }
  double fastest = kInfinity;
  std::erase_if(places, [&](const State& state) {
    if (state.seconds == kInfinity || (line.less_is_better && state.seconds >= fastest))
      return true;
    fastest = state.seconds;
    return false;
  });
  if (line.memory_fits) {
    for (State& state : places) state.memory = which_.memory_bytes - limits.rest.memory_max;
  }
  return places;
}

Core::Outcome Core::Search(double window, std::int64_t nodes_max) const {
  Outcome out;
  std::vector<Group> groups = MakeGroups(window, out.complete);
  const std::vector<Rest> rests = Rests(groups);
  std::vector<std::vector<State>> steps = {{State{.seconds = which_.fixed_s}}};
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const Rest& rest = rests[g + 1];
    const Limits limits{.rest = rest,
                        .window = window,
                        .nodes_max = nodes_max,
                        .hot_most = which_.hot_bytes - rest.hot_min,
                        .memory_most = which_.memory_bytes - rest.memory_min,
                        .hot_least = which_.hot_bytes - rest.hot_max,
                        .memory_least = which_.memory_bytes - rest.memory_max};
    const std::optional<Line> line = LineOf(steps.back(), groups[g], rest);
    std::vector<State> next = line.has_value()
                                  ? ExtendLine(*line, steps.back(), groups[g], limits, out)
                                  : Extend(steps.back(), groups[g], limits, out);
    if (out.too_large) return out;
    if (rests[g].hot_max > 0 && rest.hot_max == 0) {
      for (State& state : next) {
        state.loss += bound_.prices.hot * D(which_.hot_bytes - state.hot);
        state.hot = which_.hot_bytes;
      }
      DropBeaten(next);
    }
    steps.push_back(std::move(next));
  }
  const std::vector<State>& ends = steps.back();
  const auto best = std::min_element(ends.begin(), ends.end(), [](const State& a, const State& b) {
    return a.seconds < b.seconds;
  });
  if (best == ends.end()) return out;
  out.best = Best{.seconds = best->seconds, .choices = {}};
  out.best->choices.resize(layers_.size());
  const State* state = &*best;
  for (std::size_t g = groups.size(); g-- > 0;) {
    const Option& option = groups[g].options[S(state->option)];
    CostTables::Choice& choice = out.best->choices[groups[g].layer];
    if (option.batch_hot >= 0) choice.hot = option.batch_hot;
    if (option.batch_end >= 0) choice.end = option.batch_end;
    state = &steps[g][S(state->parent)];
  }
  return out;
}

}  // namespace thermocline::placement
