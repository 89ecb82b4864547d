// Metrics of the hot tier.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <string>
#include <vector>

#include "engine/engine.h"

namespace thermocline::server {

// Not for two threads at once. Borrows the registry.
class HotMetrics {
 public:
  HotMetrics(prometheus::Registry& registry, const std::string& prefix);
  // What a tier counts appears if there is one.
  void Expose(const EngineStats& stats);

 private:
  prometheus::Family<prometheus::Gauge>&info_, &bytes_, &neurons_, &predicted_;
  prometheus::Family<prometheus::Counter>&active_, &busy_, &total_, &wait_, &layers_, &swaps_;
};

}  // namespace thermocline::server
