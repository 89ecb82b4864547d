#include "server/metrics/flash_metrics.h"

namespace thermocline::server {

void ExposeFlash(const EngineStats& stats, MetricSet& set) {
  if (!stats.flash.used) return;
  set.SetInfo("flash_info", {{"kind", stats.flash.layers ? "layers" : "neurons"},
                             {"bundle", stats.flash.bundle},
                             {"method", stats.flash.method}});
  const FlashCounters& c = stats.flash.counters;
  set.CatchUp("flash_reads_total", c.reads);
  set.CatchUp("flash_read_bytes_total", c.bytes);
  set.CatchUp("flash_wanted_bytes_total", c.wanted_bytes);
  set.CatchUp("flash_needed_neurons_total", c.needed);
  set.CatchUp("flash_hit_neurons_total", c.hits);
  set.CatchUp("flash_ahead_useful_bytes_total", c.ahead_useful_bytes);
  set.CatchUp("flash_ahead_wasted_bytes_total", c.ahead_wasted_bytes);
  set.CatchUp("flash_retries_total", c.retries);
  set.CatchUp("flash_io_errors_total", c.io_errors);
  set.CatchUp("flash_crc_errors_total", c.crc_errors);
  set.CatchUp("flash_evictions_total", c.evictions);
  set.CatchUp("flash_overflows_total", c.overflows);
  set.CatchUp("flash_passed_total", c.passed);
  set.CatchUp("flash_wait_seconds_total", c.wait_s);
  set.CatchUp("flash_manage_seconds_total", c.manage_s);
  set.CatchUp("flash_arrive_seconds_total", c.arrive_s);
}

}  // namespace thermocline::server
