// The exact search behind the relaxation: all placements whose bound is within a window above the
// best, layer by layer, without those that another one beats in time and in both memories.
//
// At the relaxation's prices a choice of a layer costs more than the layer's least by its *loss*.
// The losses of a placement and the price of the memory that it leaves unused add up to its time
// above the bound, so whatever has lost more than the window is left out: of hundreds of choices a
// layer keeps a few.
// Source: the core of a knapsack with choices, and its dynamic programme (Pisinger 1995).
#pragma once

#include <optional>
#include <vector>

#include "engine/placement/relaxation.h"

namespace thermocline::placement {

class Core {
 public:
  // Requires: all outlive this; `bound` is Relaxation::Best of `which`.
  Core(const CostTables& tables, const Relaxation& relaxation, const Case& which,
       const BestBound& bound)
      : layers_(tables.layers()), relaxation_(relaxation), which_(which), bound_(bound) {}

  struct Best {
    double seconds = 0;
    std::vector<CostTables::Choice> choices;  // [L]
  };
  struct Outcome {
    std::optional<Best> best;  // the fastest of those within the window; none: there is none
    bool complete = false;     // the window left nothing out: a wider one finds the same
    bool too_large = false;    // more than `nodes_max` partial placements: nothing is known
    std::int64_t nodes = 0;
  };
  // A good placement, not always the best: that of slightly higher prices, and then what fits into
  // the memory that is left. Nothing if none was found to fit.
  std::optional<Best> Guess() const;
  // `window`: seconds above the bound.
  Outcome Search(double window, std::int64_t nodes_max) const;

 private:
  struct Option {
    double seconds = 0, loss = 0;
    std::int64_t hot = 0, memory = 0;
    int batch_hot = -1, batch_end = -1;  // -1: another group of the layer chooses it
  };
  // Options of a layer, or of its hot neurons or its neurons on flash alone, where these do not
  // touch.
  struct Group {
    std::size_t layer = 0;
    std::vector<Option> options = {};
    std::int64_t hot_min = 0, hot_max = 0, memory_min = 0, memory_max = 0;
  };
  struct State {
    std::int64_t hot = 0, memory = 0;
    double seconds = 0, loss = 0;
    std::int32_t parent = -1, option = -1;
  };
  // What the groups behind one may still use.
  struct Rest {
    std::int64_t hot_min = 0, hot_max = 0, memory_min = 0, memory_max = 0;
  };

  std::vector<Group> MakeGroups(double window, bool& complete) const;
  void AddLayer(std::size_t layer, double window, std::vector<Group>& hot, std::vector<Group>& end,
                bool& complete) const;
  void AddPairs(std::size_t layer, const std::vector<int>& hots, const std::vector<int>& ends,
                double least, double window, Group& group, bool& complete) const;
  // Of a state and what follows it.
  struct Limits {
    Rest rest;
    double window = 0;
    std::int64_t nodes_max = 0;
    std::int64_t hot_most = 0, memory_most = 0;    // above: the rest does not fit
    std::int64_t hot_least = 0, memory_least = 0;  // below: the rest cannot use it all
  };
  enum class Step { kFits, kTooLarge, kLoses, kNoneLeft };  // kNoneLeft: nor of the options behind
  // States by one number.
  struct Line {
    bool by_memory = false;       // else by the hot memory
    bool memory_fits = false;     // whatever follows
    bool less_is_better = false;  // of the number
    std::int64_t unit = 1, first = 0, last = 0;

    std::int64_t Of(const State& state) const { return by_memory ? state.memory : state.hot; }
  };
  std::optional<Line> LineOf(const std::vector<State>& states, const Group& group,
                             const Rest& rest) const;
  Step Add(const State& state, const Option& option, const Limits& limits, State& next) const;
  std::vector<State> Extend(const std::vector<State>& states, const Group& group,
                            const Limits& limits, Outcome& outcome) const;
  std::vector<State> ExtendLine(const Line& line, const std::vector<State>& states,
                                const Group& group, const Limits& limits, Outcome& outcome) const;
  // The change of one layer that gains most and fits; false: there is none.
  bool Improve(Best& best, std::int64_t& hot, std::int64_t& memory) const;
  static void Summarize(Group& group);
  static std::vector<Rest> Rests(const std::vector<Group>& groups);
  static void DropBeaten(std::vector<State>& states);

  const std::vector<LayerCosts>& layers_;
  const Relaxation& relaxation_;
  const Case& which_;
  const BestBound& bound_;
};

}  // namespace thermocline::placement
