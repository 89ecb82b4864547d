// The machine's energy use over time, from which an answer's energy in joules is computed.
#pragma once

#include <chrono>
#include <deque>
#include <optional>

#include "server/metrics/sensors.h"

namespace thermocline::server {

// Returns the energy of the whole machine since the first reading, as far as its rails measure it:
// a Jetson's VDD_IN; the sum of its rails if there is none (AGX); the sum of the processor packages
// of a PC. Other rails are parts of these, or of unknown extent. nullopt: there is no such rail.
std::optional<double> MachineJoules(const SensorReadings& readings);

// Thread-compatible.
class EnergyHistory {
 public:
  using Clock = std::chrono::steady_clock;

  // Requires: `at` ascends. Keeps the last 15 minutes.
  void Add(Clock::time_point at, double joules);
  // Interpolates linearly, and extrapolates the last interval. nullopt: the history does not reach
  // back so far, or has only one reading.
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
