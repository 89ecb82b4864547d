// The memory of a local server while it is under load, and whether it grows.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/base/json.h"

namespace thermocline::loadtest {

// Resident and swapped bytes: what is resident alone hides a leak that was swapped out.
struct ProcessMemory {
  double rss_bytes = 0, swap_bytes = 0;
};
// Reads /proc/PID/status. NotFound: there is no such process.
Result<ProcessMemory> ReadProcessMemory(int pid);
// Parses such a file's text; nothing without VmRSS.
std::optional<ProcessMemory> ParseProcessStatus(std::string_view text);

class MemoryWatch {
 public:
  struct Reading {
    double time = 0;  // seconds
    ProcessMemory memory;
  };
  // At most every second, and less often in a long run, so that the readings are bounded.
  void Add(double time, const ProcessMemory& memory);

  const std::vector<Reading>& readings() const { return readings_; }
  // Least squares of RSS + swap over the last three quarters of the time: at first caches fill.
  // Nothing with less than four readings there.
  std::optional<double> slope_bytes_per_hour() const;
  Json ToJson() const;  // null without readings

 private:
  double interval_s_ = 1;
  std::vector<Reading> readings_;
};

}  // namespace thermocline::loadtest
