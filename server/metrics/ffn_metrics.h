// Metrics of the feed-forward networks and their predictors, by layer.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <string>

#include "engine/engine.h"

namespace thermocline::server {

// Not for two threads at once. Borrows the registry.
class FfnMetrics {
 public:
  FfnMetrics(prometheus::Registry& registry, const std::string& prefix);
  // Series of predictors and controllers appear with the layers that have one.
  void Expose(const EngineStats& stats);

 private:
  void ExposeRows(const std::string& layer, const FfnLayerStats& s);
  void ExposeAudits(const std::string& layer, const FfnLayerStats& s);
  void ExposeController(const std::string& layer, const FfnLayerStats& s);

  using Counters = prometheus::Family<prometheus::Counter>;
  using Gauges = prometheus::Family<prometheus::Gauge>;
  Gauges& mode_;
  Counters &tokens_, &rows_, &bytes_, &saved_, &predictor_bytes_;
  Counters &audited_, &neurons_, &missed_mass_, &mass_;
  Gauges &shift_, &recall_;
  Counters& moves_;
  prometheus::Gauge& frozen_;
};

}  // namespace thermocline::server
