// Metrics of mixtures of experts.
#pragma once

#include "engine/engine.h"
#include "server/metrics/metric_set.h"

namespace thermocline::server {

// Requires: one call at a time.
void ExposeExperts(const EngineStats& stats, MetricSet& set);

}  // namespace thermocline::server
