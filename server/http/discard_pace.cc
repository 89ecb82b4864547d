#include "server/http/discard_pace.h"

#include <algorithm>

#include "engine/base/mutex.h"

namespace thermocline::http {
namespace {

using Clock = std::chrono::steady_clock;

class Pace {
 public:
  Clock::duration Take(std::size_t bytes) {
    const std::chrono::duration<double> cost(static_cast<double>(bytes) / kDiscardBytesPerSecond);
    const Clock::time_point now = Clock::now();
    const base::MutexLock lock(mutex_);
    paid_until_ = std::max(paid_until_, now) + std::chrono::duration_cast<Clock::duration>(cost);
    return paid_until_ - now;
  }

 private:
  base::Mutex mutex_;
  Clock::time_point paid_until_ GUARDED_BY(mutex_);
};

}  // namespace

Clock::duration WaitToDiscard(std::size_t bytes) {
  static Pace pace;
  return pace.Take(bytes);
}

}  // namespace thermocline::http
