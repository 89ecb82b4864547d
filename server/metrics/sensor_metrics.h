// Metrics of the machine: power, energy, temperatures, clocks.
#pragma once

#include "server/metrics/metric_set.h"
#include "server/metrics/sensors.h"

namespace thermocline::server {

// A sensor that cannot be read any more has no series any more; the energy it gave stays. Not for
// two threads at once.
void ExposeSensors(const SensorReadings& readings, MetricSet& set);

}  // namespace thermocline::server
