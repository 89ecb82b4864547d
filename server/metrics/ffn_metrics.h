// Metrics of the feed-forward networks and their predictors, by layer.
#pragma once

#include "engine/engine.h"
#include "server/metrics/metric_set.h"

namespace thermocline::server {

// Requires: one call at a time.
void ExposeFfn(const EngineStats& stats, MetricSet& set);

}  // namespace thermocline::server
