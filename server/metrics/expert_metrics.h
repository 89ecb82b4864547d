// Metrics of mixtures of experts.
#pragma once

#include "engine/engine.h"
#include "server/metrics/metric_set.h"

namespace thermocline::server {

// Not for two threads at once.
void ExposeExperts(const EngineStats& stats, MetricSet& set);

}  // namespace thermocline::server
