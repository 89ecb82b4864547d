// Metrics of the hot tier.
#pragma once

#include "engine/engine.h"
#include "server/metrics/metric_set.h"

namespace thermocline::server {

// Not for two threads at once.
void ExposeHot(const EngineStats& stats, MetricSet& set);

}  // namespace thermocline::server
