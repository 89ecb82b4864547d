// The model of problem.h as tables over counts of batches, the only input of the solver.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/base/index.h"
#include "engine/placement/placement.h"
#include "engine/placement/problem.h"

namespace thermocline::placement {

enum Side { kCold = 0, kHot = 1 };

// N = batches. A layer's choice: `hot`, the number of hot batches, and `end`, the first batch on
// flash; hot <= end.
struct LayerCosts {
  std::vector<std::int64_t> neurons;        // [N + 1] of the first batches
  std::array<std::vector<double>, 2> time;  // [side of home][N + 1] seconds, by `hot`; no flash
  std::vector<double> flash;                // [N + 1] seconds, by `end`
  int hot_min = 0;                          // N if all must be hot, otherwise 0
  int hot_max = 0;                          // N, or 0 if there is no hot side
  int end_min = 0;                          // 0, or N if there is no flash
  // Bytes: hot = hot_base + hot_neuron n(hot);
  //        RAM = memory_base + end_neuron n(end) - memory_neuron n(hot).
  std::int64_t hot_base = 0, hot_neuron = 0;
  std::int64_t memory_base = 0, memory_neuron = 0, end_neuron = 0;
  std::int64_t home_bytes = 0;

  int batches() const { return base::IntSize(neurons) - 1; }
  std::int64_t HotBytes(int hot) const { return hot_neuron * neurons[hot]; }
  std::int64_t MemoryBytes(int hot, int end) const {
    return end_neuron * neurons[end] - memory_neuron * neurons[hot];
  }
};

// Sums over the first batches of a layer, which determine its costs. Seconds of any range are
// linear in them.
struct Prefix {
  std::int64_t neurons = 0;
  double decided = 0;  // expected neurons whose deciding row is read
  double active = 0;   // expected number of active neurons
};

class CostTables {
 public:
  // Requires: Validate(problem) is OK; it outlives this. `deciding_held`: as in Placement.
  CostTables(const Problem& problem, bool deciding_held);

  const std::vector<LayerCosts>& layers() const { return layers_; }
  double head_s(Side side) const { return head_s_[side]; }
  // True if both sides share one memory, so that everything is computed hot.
  bool IsUnified() const { return HasHot() && problem_.machine.unified; }
  // The time of switches with homes 0..hot_homes-1 on the hot side and the head on `head`.
  double SwitchTime(int hot_homes, Side head) const;

  struct Choice {
    int hot = 0, end = 0;
  };
  // The placement for these choices, with all its parts. Requires: choices of all layers.
  Placement Describe(int hot_homes, Side head, const std::vector<Choice>& choices) const;

 private:
  void AddLayer(const LayerShape& shape);
  double SideTime(const LayerShape& shape, Side side, const Prefix& range) const;
  double HomeTime(const LayerShape& shape, Side side) const;
  double FlashTime(const LayerShape& shape, const Prefix& range) const;
  // The times of one layer, by counts of batches.
  LayerPlacement Times(std::size_t layer, Side home, Choice choice) const;
  bool HasHot() const { return problem_.machine.hot.has_value(); }
  const Processor& ProcessorOf(Side side) const {
    return side == kHot ? *problem_.machine.hot : problem_.machine.cold;
  }
  bool Held(const LayerShape& shape) const {
    return deciding_held_ && shape.reading != Reading::kDense;
  }

  const Problem& problem_;
  const bool deciding_held_;
  std::vector<LayerCosts> layers_;
  std::vector<std::vector<Prefix>> prefixes_;  // [L][N + 1]
  std::array<double, 2> head_s_ = {};
};

}  // namespace thermocline::placement
