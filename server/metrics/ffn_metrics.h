// Metrics of the feed-forward networks and their predictors, by layer.
#pragma once

#include "engine/engine.h"
#include "server/metrics/metric_set.h"

namespace thermocline::server {

// Not for two threads at once.
void ExposeFfn(const EngineStats& stats, MetricSet& set);

}  // namespace thermocline::server
