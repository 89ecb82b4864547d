// The readings of the machine's sensors, and the energy that its rails have given.
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
    std::optional<double> value = {};  // nothing: it could not be read
  };
  struct Rail {
    std::string name;
    std::optional<double> watts = {};   // as Value; of a counter of energy, the mean since before
    std::optional<double> joules = {};  // since the first reading; nothing: there was none yet
  };
  std::vector<Rail> rails;
  std::vector<Value> zones;  // degrees Celsius
  std::vector<Value> units;  // Hz
};

// Thread-compatible.
class Sensors {
 public:
  using Clock = std::chrono::steady_clock;

  // Finds them below `root` (sensor_scan.h).
  explicit Sensors(const std::string& root);
  bool empty() const { return list_.empty(); }

  // Reads all. The energy of a rail that tells power is the trapezoid between two readings; what
  // passes while a rail cannot be read is not counted. Requires: `now` ascends.
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
