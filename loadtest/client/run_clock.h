// The clock of a run: seconds since its start.
#pragma once

#include <chrono>

namespace thermocline::loadtest {

inline std::chrono::steady_clock::duration ToDuration(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

class RunClock {
 public:
  using Steady = std::chrono::steady_clock;
  double Now() const { return std::chrono::duration<double>(Steady::now() - begin_).count(); }
  Steady::time_point At(double seconds) const { return begin_ + ToDuration(seconds); }

 private:
  Steady::time_point begin_ = Steady::now();
};

}  // namespace thermocline::loadtest
