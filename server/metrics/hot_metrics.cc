#include "server/metrics/hot_metrics.h"

#include "server/metrics/catch_up.h"

namespace thermocline::server {
namespace {

auto& Gauges(prometheus::Registry& registry, const std::string& name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}
auto& Counters(prometheus::Registry& registry, const std::string& name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

}  // namespace

HotMetrics::HotMetrics(prometheus::Registry& r, const std::string& p)
    : info_(Gauges(r, p + "device_info",
                   "What computes; fallback: why not a GPU though device is auto; always 1")),
      bytes_(Gauges(r, p + "hot_bytes", "Memory of the hot tier's neurons")),
      neurons_(Gauges(r, p + "hot_neurons", "Neurons of the hot tier")),
      predicted_(Gauges(r, p + "hot_planned_tokens_per_second",
                        "Decoding speed that the placement was planned for")),
      active_(Counters(r, p + "hot_active_neurons_total",
                       "Active neurons of decoded tokens by the side that computed them")),
      busy_(Counters(r, p + "hot_busy_seconds_total",
                     "Computing time of either side, in layers that both work on")),
      total_(Counters(r, p + "hot_layer_seconds_total", "Time of the layers that both work on")),
      wait_(Counters(r, p + "hot_wait_seconds_total",
                     "Of this time, in which the cold side waited for the hot one")),
      layers_(Counters(r, p + "hot_layers_total", "Layers of decoded tokens that both worked on")),
      swaps_(Counters(r, p + "hot_swaps_total", "Neurons swapped between the sides")) {}

void HotMetrics::Expose(const EngineStats& stats) {
  const HotStats& hot = stats.hot;
  info_.Add({{"device", hot.device}, {"fallback", hot.fallback}}).Set(1);
  if (!hot.used) return;
  bytes_.Add({}).Set(static_cast<double>(hot.bytes));
  neurons_.Add({}).Set(static_cast<double>(hot.neurons));
  predicted_.Add({}).Set(hot.predicted_tokens_per_s);
  CatchUp(active_.Add({{"side", "hot"}}), hot.active_hot);
  CatchUp(active_.Add({{"side", "cold"}}), hot.active_cold);
  CatchUp(busy_.Add({{"side", "hot"}}), hot.hot_s);
  CatchUp(busy_.Add({{"side", "cold"}}), hot.cold_s);
  CatchUp(total_.Add({}), hot.total_s);
  CatchUp(wait_.Add({}), hot.wait_s);
  CatchUp(layers_.Add({}), hot.layers);
  CatchUp(swaps_.Add({}), hot.swaps);
}

}  // namespace thermocline::server
