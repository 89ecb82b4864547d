// Watches the memory of a local server under load, and detects growth.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/base/json.h"

namespace thermocline::loadtest {

// Resident and swapped bytes; resident bytes alone would hide a leak that was swapped out.
struct ProcessMemory {
  double rss_bytes = 0, swap_bytes = 0;
};
// Reads /proc/PID/status. NotFound: there is no such process.
Result<ProcessMemory> ReadProcessMemory(int pid);
// Parses such a file's text; nullopt without VmRSS.
std::optional<ProcessMemory> ParseProcessStatus(std::string_view text);

class MemoryWatch {
 public:
  struct Sample {
    double time = 0;  // seconds
    ProcessMemory memory;
  };
  // Adds a reading. Keeps at most one per second, and fewer in a long run, so that memory is
  // bounded.
  void Add(double time, const ProcessMemory& memory);

  const std::vector<Sample>& samples() const { return samples_; }
  // The least-squares slope of RSS + swap over the last three quarters of the time, since caches
  // fill at first. nullopt with less than four readings there.
  std::optional<double> slope_bytes_per_hour() const;
  Json ToJson() const;  // null without readings

 private:
  double interval_s_ = 1;
  std::vector<Sample> samples_;
};

}  // namespace thermocline::loadtest
