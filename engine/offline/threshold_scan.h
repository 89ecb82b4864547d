// Finds the highest threshold on logits that keeps a recall, and its share of predictions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace thermocline::offline {

// Counts logits in fine bins, so that held-out tokens are computed once and need not be stored.
// Thread-compatible.
class ThresholdScan {
 public:
  ThresholdScan() : all_(kBins), positive_(kBins) {}

  void Add(float logit) { ++all_[Bin(logit)]; }
  // Adds the logit of an active neuron, in addition to Add.
  void AddPositive(float logit) { ++positive_[Bin(logit)]; }

  struct Choice {
    float threshold = 0;
    double recall = 0, predicted_share = 0, active_share = 0;
  };
  // Requires: at least one positive.
  Choice Choose(double recall) const;
  // The result at a given threshold, to the width of a bin (0.001).
  Choice At(float threshold) const;

 private:
  Choice From(int bin) const;  // of all logits from that bin on
  static constexpr int kBins = 1 << 16;
  static constexpr float kRange = 32;  // logits beyond this are counted in the outermost bins
  static constexpr float kBinWidth = 2 * kRange / kBins;
  static int Bin(float logit);
  static float LowerEdge(int bin) {
    if (bin == 0) return std::numeric_limits<float>::lowest();
    return static_cast<float>(bin) * kBinWidth - kRange;
  }

  std::vector<std::int64_t> all_, positive_;  // [kBins]
};

}  // namespace thermocline::offline
