// Metrics of the flash tier and of the memory budget.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <string>
#include <vector>

#include "engine/engine.h"

namespace thermocline::server {

// Not for two threads at once. Borrows the registry.
class FlashMetrics {
 public:
  FlashMetrics(prometheus::Registry& registry, const std::string& prefix);
  // Series of the flash tier appear if it is used.
  void Expose(const EngineStats& stats);

 private:
  std::vector<prometheus::Family<prometheus::Counter>*> counters_;  // as the table of names
  prometheus::Family<prometheus::Gauge>& info_;
  prometheus::Gauge &budget_, &planned_;
  prometheus::Counter& heartbeats_;
};

}  // namespace thermocline::server
