// The energy that the machine has taken, by time: what an answer cost, in joules.
#pragma once

#include <chrono>
#include <deque>
#include <optional>

#include "server/metrics/sensors.h"

namespace thermocline::server {

// Returns the energy of the whole machine since the first reading, as far as its rails tell: a
// Jetson's VDD_IN; the sum of its rails where there is none (AGX); the sum of the processors'
// packages of a PC. Other rails are parts of these, or of unknown extent. nullopt: there is no such
// rail.
std::optional<double> MachineJoules(const SensorReadings& readings);

// Thread-compatible.
class EnergyHistory {
 public:
  using Clock = std::chrono::steady_clock;

  // Requires: `at` ascends. Keeps the last quarter of an hour.
  void Add(Clock::time_point at, double joules);
  // Linear between readings, and beyond the last one as before it. nullopt: not known so far back,
  // or there is only one reading.
  std::optional<double> Between(Clock::time_point begin, Clock::time_point end) const;

 private:
  struct Point {
    Clock::time_point at;
    double joules;
  };
  double At(Clock::time_point time) const;

  std::deque<Point> points_;
};

}  // namespace thermocline::server
