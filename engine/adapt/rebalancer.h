// Swaps neurons between the hot and the cold side as the text changes which are used.
//
// Uses are counted with a half-life; a cold neuron that was clearly more used than the least used
// hot one of its layer takes its place. Swaps are few, at fixed places between tokens, so that
// their cost is bounded. Outputs stay the same bits where both sides compute the same products in
// one order (docs/placement.md says for which types); elsewhere they differ in rounding.
#pragma once

#include <span>
#include <vector>

#include "engine/load/loaded_model.h"
#include "engine/predictor/subset.h"

namespace thermocline::adapt {

struct RebalanceOptions {
  int half_life = 512;  // tokens
  int interval = 16;    // tokens between two rounds
  int swaps = 4;        // of a round at most
  float advantage = 2;  // uses of the cold neuron over those of the hot one, at least
  float uses_min = 4;   // and so many more
};

// Whether rebalancing can be: a hot side on the CPU, all in memory. Logs the reason if not.
bool CanRebalance(const load::LoadedModel& model, exec::Transformer& transformer);

// Decode thread only. Borrows both; takes the transformer's OnFound.
class Rebalancer {
 public:
  // Requires: CanRebalance.
  Rebalancer(load::LoadedModel& model, exec::Transformer& transformer,
             const RebalanceOptions& options = {});
  ~Rebalancer();
  Rebalancer(const Rebalancer&) = delete;
  Rebalancer& operator=(const Rebalancer&) = delete;

  // Between two tokens: now and then a round.
  void AfterToken();
  // Rounds for every layer, when there is nothing else to do.
  void Idle();
  std::int64_t swaps() const { return swaps_; }

 private:
  void Count(int layer, std::span<const int> ids);
  // The best swaps of one layer. Returns how many.
  int Round(int layer, int most);

  load::LoadedModel& model_;
  exec::Transformer& transformer_;
  const RebalanceOptions options_;
  std::vector<std::vector<float>> uses_;  // [L][F] in units of weight_
  float weight_ = 1;                      // of a use now: grows instead of all others shrinking
  std::int64_t tokens_ = 0, swaps_ = 0;
  int layer_ = 0;  // whose turn it is
  predictor::PredictorRow hot_row_, cold_row_;
};

}  // namespace thermocline::adapt
