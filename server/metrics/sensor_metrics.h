// Metrics of the machine: power, energy, temperatures, clocks.
#pragma once

#include "server/metrics/metric_set.h"
#include "server/metrics/sensors.h"

namespace thermocline::server {

// A sensor that has become unreadable loses its series; its energy so far stays. Requires: one call
// at a time.
void ExposeSensors(const SensorReadings& readings, MetricSet& set);

}  // namespace thermocline::server
