// Finds and reads the machine's sensors, which Linux shows in sysfs.
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

// Limits rails, zones and units each; the first ones found are kept.
inline constexpr std::size_t kSensorsMax = 64;

struct Sensor {
  std::string name;                // valid UTF-8, no control characters; unique within its kind
  std::vector<std::string> files;  // the value is the product of their integers ...
  int exponent = 0;                // ... times 10 to this
  double range_joules = 0;  // for an energy counter, which wraps there; 0 = it measures power
};

struct SensorList {
  std::vector<Sensor> rails;  // W, or J for those with range_joules
  std::vector<Sensor> zones;  // degrees Celsius
  std::vector<Sensor> units;  // Hz

  bool empty() const { return rails.empty() && zones.empty() && units.empty(); }
};

// The sensors below `root`, which is /sys except in tests. They may be unreadable now: a GPU's
// sensors fail while it is off.
SensorList FindSensors(const std::string& root);

// nullopt if a file cannot be read or holds no integer. May take as long as the sensor's bus.
std::optional<double> ReadSensor(const Sensor& sensor);

}  // namespace thermocline::server
