// Decides if reading ahead from flash for the next layer pays off. It costs a prediction, so it
// must find neurons to read, and mostly the right ones.
#pragma once

#include <cstdint>

#include "engine/api/flash_stats.h"

namespace thermocline::ffn {

class ReadAheadMonitor {
 public:
  static constexpr int kJudgedAfter = 256, kSkipped = 4096;  // predictions
  static constexpr float kFreshMin = 4;  // recent average of neurons per layer that had to be read

  // True if the next prediction is expected to pay off. fresh_uses: neurons needed so far that were
  // not in memory, or only because they had been read ahead.
  bool Pays(std::int64_t fresh_uses, const FlashCounters& counters);

 private:
  std::int64_t fresh_uses_ = 0;           // at the last call
  float fresh_mean_ = 0;                  // moving average between calls
  int predictions_ = 0, skipped_ = 0;     // since the last decision; still to be skipped
  std::int64_t useful_ = 0, wasted_ = 0;  // bytes at the last decision
};

}  // namespace thermocline::ffn
