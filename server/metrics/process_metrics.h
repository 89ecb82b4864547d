// Prometheus' standard metrics of a process, from /proc/self.
#pragma once

#include "server/metrics/metric_set.h"

namespace thermocline::server {

// Reads /proc anew. What cannot be read keeps its value. Not for two threads at once.
void ExposeProcess(MetricSet& set);

}  // namespace thermocline::server
