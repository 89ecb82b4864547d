#include "engine/ffn/read_ahead_monitor.h"

namespace thermocline::ffn {

bool ReadAheadMonitor::Pays(std::int64_t fresh_uses, const FlashCounters& c) {
  fresh_mean_ += (static_cast<float>(fresh_uses - fresh_uses_) - fresh_mean_) / 32;
  fresh_uses_ = fresh_uses;
  if (fresh_mean_ < kFreshMin) return false;
  if (skipped_ > 0) return --skipped_ == 0;
  if (++predictions_ < kJudgedAfter) return true;
  const std::int64_t useful = c.ahead_useful_bytes - useful_,
                     wasted = c.ahead_wasted_bytes - wasted_;
  predictions_ = 0;
  useful_ = c.ahead_useful_bytes;
  wasted_ = c.ahead_wasted_bytes;
  if (wasted > useful) skipped_ = kSkipped;
  return wasted <= useful;
}

}  // namespace thermocline::ffn
