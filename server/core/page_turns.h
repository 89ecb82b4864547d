// The pace of requests without a body. They are answered on the threads that carry streams, so a
// tenant that asks for page after page gets a share of one processor, and its next pages wait.
#pragma once

#include <chrono>
#include <string>
#include <unordered_map>

#include "engine/base/mutex.h"

namespace thermocline::server {

// Thread-safe.
class PageTurns {
 public:
  using Clock = std::chrono::steady_clock;
  // A page is followed by a pause of so many times what it took of a processor.
  static constexpr int kPause = 5;
  // The pauses that a tenant may save up: twenty milliseconds of work.
  static constexpr std::chrono::milliseconds kBurst{100};

  // The place of one page.
  struct Turn {
    Clock::duration wait;    // until it may be made; 0: at once
    Clock::duration booked;  // of a processor, as its tenant's last page took
  };
  // Pages that wait are made one after the other. Every Begin has its End.
  Turn Begin(const std::string& tenant, Clock::time_point now);
  // The page of `turn` took `spent` of a processor.
  void End(const std::string& tenant, const Turn& turn, Clock::duration spent);

 private:
  struct Pace {
    Clock::time_point next = {};  // the end of the pauses
    Clock::duration page = {};    // of a processor, by the last page
  };
  // Forgets tenants whose pauses are over, once there are many.
  void ForgetSilent(Clock::time_point now) REQUIRES(mutex_);

  base::Mutex mutex_;
  std::unordered_map<std::string, Pace> paces_ GUARDED_BY(mutex_);  // by tenant
};

}  // namespace thermocline::server
