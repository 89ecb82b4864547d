// The timeline of a run: tokens, requests and errors per second, for plots. Bounded: in a long run,
// two neighboring intervals are merged.
#pragma once

#include <cstdint>
#include <vector>

#include "loadtest/workload/answer.h"

namespace thermocline::loadtest {

class Timeline {
 public:
  struct Bin {
    double tokens = 0, started = 0, ok = 0, failed = 0;
    double in_flight = 0;  // the maximum at a tick
    double rss_bytes = 0;  // the last reading
  };
  void Add(const Answer& answer);
  void SetInFlight(double now, int in_flight);
  void SetMemory(double now, double rss_bytes);

  double bin_s() const { return bin_s_; }
  const std::vector<Bin>& bins() const { return bins_; }

 private:
  static constexpr std::size_t kBinsMax = 600;
  Bin& At(double time);

  double bin_s_ = 1;
  std::vector<Bin> bins_;
};

}  // namespace thermocline::loadtest
