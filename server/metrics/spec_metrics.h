// Metrics of speculative decoding.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <string>

#include "engine/engine.h"

namespace thermocline::server {

// Not for two threads at once. Borrows the registry.
class SpecMetrics {
 public:
  SpecMetrics(prometheus::Registry& registry, const std::string& prefix);
  // Series appear if the engine was loaded with a mode other than off.
  void Expose(const EngineStats& stats);

 private:
  void ExposeInfo(const SpecStats& spec);

  using Counters = prometheus::Family<prometheus::Counter>;
  using Gauges = prometheus::Family<prometheus::Gauge>;
  Counters &drafts_, &draft_tokens_, &accepted_tokens_, &accepted_at_;
  Counters &hits_, &misses_, &wait_, &draft_, &verify_, &wasted_, &plain_;
  Gauges &length_, &acceptance_, &token_, &info_;
  std::string mode_now_;  // of the one series of info_
};

}  // namespace thermocline::server
