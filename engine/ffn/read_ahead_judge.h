// Decides whether it pays to read ahead what the next layer will probably need from flash. That
// costs a prediction: it must find something to read, and mostly be right.
#pragma once

#include <cstdint>

#include "engine/api/flash_stats.h"

namespace thermocline::ffn {

class ReadAheadJudge {
 public:
  static constexpr int kJudgedAfter = 256, kSkipped = 4096;  // predictions
  static constexpr float kFreshMin = 4;  // neurons a layer that had to be read, on average of late

  // True if the next prediction will pay. fresh_uses: neurons needed so far that were not in
  // memory, or only because they had been read ahead.
  bool Pays(std::int64_t fresh_uses, const FlashCounters& counters);

 private:
  std::int64_t fresh_uses_ = 0;           // at the last call
  float fresh_mean_ = 0;                  // of late, between calls
  int predictions_ = 0, skipped_ = 0;     // since they were judged; still to be skipped
  std::int64_t useful_ = 0, wasted_ = 0;  // bytes, when they were last judged
};

}  // namespace thermocline::ffn
