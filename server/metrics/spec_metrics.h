// Metrics of speculative decoding.
#pragma once

#include "engine/engine.h"
#include "server/metrics/metric_set.h"

namespace thermocline::server {

// Requires: one call at a time.
void ExposeSpec(const EngineStats& stats, MetricSet& set);

}  // namespace thermocline::server
