// Reads the machine's sensors, and sums its rails' energy.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "server/metrics/sensor_scan.h"

namespace thermocline::server {

struct SensorReadings {
  struct Value {
    std::string name;
    std::optional<double> value = {};  // nullopt: it could not be read
  };
  struct Rail {
    std::string name;
    // As Value; for an energy counter the mean since the last reading.
    std::optional<double> watts = {};
    std::optional<double> joules = {};  // since the first reading; nullopt before it
  };
  std::vector<Rail> rails;
  std::vector<Value> zones;  // degrees Celsius
  std::vector<Value> units;  // Hz
};

// Thread-compatible.
class Sensors {
 public:
  using Clock = std::chrono::steady_clock;

  // Finds the sensors below `root` (sensor_scan.h).
  explicit Sensors(const std::string& root);
  bool empty() const { return list_.empty(); }

  // Reads all sensors. The energy of a rail that measures power is the trapezoid between two
  // readings; times when a rail cannot be read do not count. Requires: `now` ascends.
  const SensorReadings& Read(Clock::time_point now);

 private:
  // A rail's last reading: W or J.
  struct Before {
    std::optional<double> value;
    Clock::time_point at;
  };
  void ReadPower(std::size_t rail, Clock::time_point now);
  void ReadEnergy(std::size_t rail, Clock::time_point now);

  const SensorList list_;
  std::vector<Before> before_;  // by rail
  SensorReadings readings_;
};

}  // namespace thermocline::server
