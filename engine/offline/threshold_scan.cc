#include "engine/offline/threshold_scan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace thermocline::offline {

int ThresholdScan::Bin(float logit) {
  if (!(logit > -kRange)) return 0;  // includes NaN
  return static_cast<int>(std::min((logit + kRange) / kBinWidth, static_cast<float>(kBins - 1)));
}

ThresholdScan::Choice ThresholdScan::From(int bin) const {
  const auto sum = [](const std::vector<std::int64_t>& counts, int from) {
    return static_cast<double>(
        std::accumulate(counts.begin() + from, counts.end(), std::int64_t{0}));
  };
  const double total = sum(all_, 0), positives = sum(positive_, 0);
  return {.threshold = LowerEdge(bin),
          .recall = sum(positive_, bin) / positives,
          .predicted_share = sum(all_, bin) / total,
          .active_share = positives / total};
}

ThresholdScan::Choice ThresholdScan::Choose(double recall) const {
  const auto positives = std::accumulate(positive_.begin(), positive_.end(), std::int64_t{0});
  const auto wanted =
      static_cast<std::int64_t>(std::ceil(recall * static_cast<double>(positives) - 1e-9));
  std::int64_t caught = 0;
  int bin = kBins;
  while (bin > 0 && caught < wanted) caught += positive_[--bin];
  return From(bin);
}

ThresholdScan::Choice ThresholdScan::At(float threshold) const { return From(Bin(threshold)); }

}  // namespace thermocline::offline
