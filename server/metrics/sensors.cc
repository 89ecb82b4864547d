#include "server/metrics/sensors.h"

#include <algorithm>

namespace thermocline::server {
namespace {

// Drivers report values below this for a sensor that is off: THERMAL_TEMP_INVALID, and -256 degrees
// on Tegra.
constexpr double kCelsiusMin = -200;
// The maximum of one rail. A counter that was reset looks like one that wrapped, but it would have
// grown by more than this.
constexpr double kWattsMax = 10'000;

double Seconds(Sensors::Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Sensors::Sensors(const std::string& root) : list_(FindSensors(root)), before_(list_.rails.size()) {
  for (const Sensor& rail : list_.rails) readings_.rails.push_back({.name = rail.name});
  for (const Sensor& zone : list_.zones) readings_.zones.push_back({.name = zone.name});
  for (const Sensor& unit : list_.units) readings_.units.push_back({.name = unit.name});
}

const SensorReadings& Sensors::Read(Clock::time_point now) {
  for (std::size_t i = 0; i < list_.rails.size(); ++i) {
    if (list_.rails[i].range_joules > 0) {
      ReadEnergy(i, now);
    } else {
      ReadPower(i, now);
    }
  }
  for (std::size_t i = 0; i < list_.zones.size(); ++i) {
    auto& celsius = readings_.zones[i].value;
    celsius = ReadSensor(list_.zones[i]);
    if (celsius.has_value() && *celsius < kCelsiusMin) celsius.reset();
  }
  for (std::size_t i = 0; i < list_.units.size(); ++i)
    readings_.units[i].value = ReadSensor(list_.units[i]);
  return readings_;
}

void Sensors::ReadPower(std::size_t rail, Clock::time_point now) {
  SensorReadings::Rail& out = readings_.rails[rail];
  Before& before = before_[rail];
  out.watts = ReadSensor(list_.rails[rail]);
  if (out.watts.has_value()) {
    // A current of 0 is sometimes measured slightly below 0, but energy must not fall.
    const double mean =
        before.value.has_value() ? std::max(0.0, (*before.value + *out.watts) / 2) : 0;
    out.joules = out.joules.value_or(0) + mean * Seconds(now - before.at);
  }
  before = {out.watts, now};
}

void Sensors::ReadEnergy(std::size_t rail, Clock::time_point now) {
  SensorReadings::Rail& out = readings_.rails[rail];
  Before& before = before_[rail];
  const auto counted = ReadSensor(list_.rails[rail]);
  out.watts.reset();
  if (counted.has_value()) {
    const double seconds = Seconds(now - before.at);
    double grown = before.value.has_value() ? *counted - *before.value : 0;
    if (grown < 0) grown += list_.rails[rail].range_joules;
    const bool likely = grown >= 0 && grown <= kWattsMax * seconds;
    if (before.value.has_value() && likely && seconds > 0) out.watts = grown / seconds;
    out.joules = out.joules.value_or(0) + (out.watts.has_value() ? grown : 0);
  }
  before = {counted, now};
}

}  // namespace thermocline::server
