// The machine's sensors as Linux shows them in sysfs: where they are, and how one is read.
//
//   rails  class/hwmon/*: power*_input or power*_average (uW); of an ina3221 (Jetson), which has no
//          power, in*_input (mV) times curr*_input (mA)
//          class/powercap/intel-rapl:*: energy_uj, of Intel's and AMD's processors
//   zones  class/thermal/thermal_zone*, class/hwmon/*: temp*_input (1/1000 degree Celsius)
//   units  devices/system/cpu/cpufreq/policy*: scaling_cur_freq (kHz)
//          class/devfreq/*: cur_freq (Hz), of GPUs
// Source: Documentation/{hwmon/sysfs-interface,power/powercap,cpu-freq} of Linux; the names of a
// Jetson's rails: NVIDIA's Jetson Linux Developer Guide, "Power monitoring".
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace thermocline::server {

// The most rails, the most zones and the most units: a machine with more shows the first ones.
inline constexpr std::size_t kSensorsMax = 64;

struct Sensor {
  std::string name;  // valid UTF-8, no control characters; no other of its kind has it
  std::vector<std::string> files;  // the value is the product of their whole numbers ...
  int exponent = 0;                // ... times 10 to this
  double range_joules = 0;         // of a counter of energy, which begins anew there; 0 = of power
};

struct SensorList {
  std::vector<Sensor> rails;  // W, or J of those with range_joules
  std::vector<Sensor> zones;  // degrees Celsius
  std::vector<Sensor> units;  // Hz

  bool empty() const { return rails.empty() && zones.empty() && units.empty(); }
};

// The sensors below `root`, which is /sys but in tests. They need not be readable now: a GPU's
// sensors fail while it is off.
SensorList FindSensors(const std::string& root);

// Returns nothing if a file cannot be read or holds no integer. May take as long as the bus that
// the sensor is on.
std::optional<double> ReadSensor(const Sensor& sensor);

}  // namespace thermocline::server
