// Metrics of the flash tier.
#pragma once

#include "engine/engine.h"
#include "server/metrics/metric_set.h"

namespace thermocline::server {

// Not for two threads at once.
void ExposeFlash(const EngineStats& stats, MetricSet& set);

}  // namespace thermocline::server
