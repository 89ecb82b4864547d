// Prometheus' standard metrics of a process, from /proc/self.
#pragma once

#include "server/metrics/metric_set.h"

namespace thermocline::server {

// Reads /proc anew. Values that cannot be read stay the same. Requires: one call at a time.
void ExposeProcess(MetricSet& set);

}  // namespace thermocline::server
