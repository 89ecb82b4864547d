// Metrics of the engine as a whole: queue, steps, caches, memory.
#pragma once

#include "engine/engine.h"
#include "server/metrics/metric_set.h"

namespace thermocline::server {

// Requires: one call at a time.
void ExposeEngine(const EngineStats& stats, MetricSet& set);

}  // namespace thermocline::server
