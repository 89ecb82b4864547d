// Seconds since a moment, on the clock that never steps.
#pragma once

#include <chrono>

namespace thermocline::base {

class Stopwatch {
 public:
  using Clock = std::chrono::steady_clock;
  double Seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  // Begins again; returns the seconds until now.
  double Restart() {
    const double seconds = Seconds();
    begin_ = Clock::now();
    return seconds;
  }

 private:
  Clock::time_point begin_ = Clock::now();
};

}  // namespace thermocline::base
