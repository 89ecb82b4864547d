// The processor time of a thread.
#pragma once

#include <time.h>

#include <chrono>

namespace thermocline::base {

// Of the calling thread, since its start.
inline std::chrono::nanoseconds ThreadProcessorTime() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace thermocline::base
