#include "server/metrics/sensor_metrics.h"

namespace thermocline::server {
namespace {

void SetOrRemove(const char* gauge, const std::optional<double>& value,
                 const MetricSet::Labels& labels, MetricSet& set) {
  if (value.has_value()) {
    set.Set(gauge, *value, labels);
  } else {
    set.Remove(gauge, labels);
  }
}

}  // namespace

void ExposeSensors(const SensorReadings& readings, MetricSet& set) {
  for (const SensorReadings::Rail& rail : readings.rails) {
    SetOrRemove("power_watts", rail.watts, {{"rail", rail.name}}, set);
    if (rail.joules.has_value())
      set.CatchUp("energy_joules_total", *rail.joules, {{"rail", rail.name}});
  }
  for (const SensorReadings::Value& zone : readings.zones)
    SetOrRemove("temperature_celsius", zone.value, {{"zone", zone.name}}, set);
  for (const SensorReadings::Value& unit : readings.units)
    SetOrRemove("clock_hertz", unit.value, {{"unit", unit.name}}, set);
}

}  // namespace thermocline::server
