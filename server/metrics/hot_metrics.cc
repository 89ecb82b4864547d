#include "server/metrics/hot_metrics.h"

namespace thermocline::server {

void ExposeHot(const EngineStats& stats, MetricSet& set) {
  const HotStats& hot = stats.hot;
  set.SetInfo("device_info", {{"device", hot.device}, {"fallback", hot.fallback}});
  if (!hot.used) return;
  set.Set("hot_bytes", hot.bytes);
  set.Set("hot_neurons", hot.neurons);
  set.Set("hot_planned_tokens_per_second", hot.predicted_tokens_per_s);
  set.CatchUp("hot_active_neurons_total", hot.active_hot, {{"side", "hot"}});
  set.CatchUp("hot_active_neurons_total", hot.active_cold, {{"side", "cold"}});
  set.CatchUp("hot_busy_seconds_total", hot.hot_s, {{"side", "hot"}});
  set.CatchUp("hot_busy_seconds_total", hot.cold_s, {{"side", "cold"}});
  set.CatchUp("hot_layer_seconds_total", hot.total_s);
  set.CatchUp("hot_wait_seconds_total", hot.wait_s);
  set.CatchUp("hot_layers_total", hot.layers);
}

}  // namespace thermocline::server
