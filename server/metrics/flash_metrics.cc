#include "server/metrics/flash_metrics.h"

#include <iterator>

#include "server/metrics/catch_up.h"

namespace thermocline::server {
namespace {

double D(std::int64_t n) { return static_cast<double>(n); }

// What is counted, by its name behind the prefix.
using C = FlashCounters;
struct Counter {
  const char* name;
  const char* help;
  double (*of)(const C&);
};
constexpr Counter kCounters[] = {
    {"flash_reads_total", "Reads started, those ahead included",
     [](const C& c) { return D(c.reads); }},
    {"flash_read_bytes_total", "Bytes of these reads", [](const C& c) { return D(c.bytes); }},
    {"flash_wanted_bytes_total",
     "Of these bytes, those of neurons that were asked for; the rest lies between them",
     [](const C& c) { return D(c.wanted_bytes); }},
    {"flash_needed_neurons_total", "Neurons that decoded tokens needed",
     [](const C& c) { return D(c.needed); }},
    {"flash_hit_neurons_total", "Of these, those that were in memory",
     [](const C& c) { return D(c.hits); }},
    {"flash_ahead_useful_bytes_total", "Bytes read ahead that were then needed",
     [](const C& c) { return D(c.ahead_useful_bytes); }},
    {"flash_ahead_wasted_bytes_total", "Bytes read ahead that were given up unused",
     [](const C& c) { return D(c.ahead_wasted_bytes); }},
    {"flash_retries_total", "Reads that were tried again", [](const C& c) { return D(c.retries); }},
    {"flash_io_errors_total", "Reads that failed or came back short",
     [](const C& c) { return D(c.io_errors); }},
    {"flash_crc_errors_total", "Neurons or pieces of layers whose bytes were not those packed",
     [](const C& c) { return D(c.crc_errors); }},
    {"flash_evictions_total", "Neurons that left the cache for others",
     [](const C& c) { return D(c.evictions); }},
    {"flash_overflows_total", "Neurons that were used without a place in the cache",
     [](const C& c) { return D(c.overflows); }},
    {"flash_wait_seconds_total", "Time in which decoding had nothing to do but to wait for reads",
     [](const C& c) { return c.wait_s; }},
    {"flash_manage_seconds_total", "Time spent on finding, choosing and evicting",
     [](const C& c) { return c.manage_s; }},
    {"flash_arrive_seconds_total", "Time spent on checking and placing what was read",
     [](const C& c) { return c.arrive_s; }},
};

prometheus::Family<prometheus::Gauge>& MakeGauges(prometheus::Registry& registry,
                                                  const std::string& name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

}  // namespace

FlashMetrics::FlashMetrics(prometheus::Registry& r, const std::string& p)
    : info_(MakeGauges(r, p + "flash_info",
                       "What is read from flash (neurons or layers) and how; always 1")),
      budget_(MakeGauges(r, p + "memory_budget_bytes", "What the whole process may take").Add({})),
      planned_(MakeGauges(r, p + "memory_planned_bytes",
                          "What it will take at most, as planned while loading")
                   .Add({})),
      heartbeats_(prometheus::BuildCounter()
                      .Name(p + "engine_heartbeats_total")
                      .Help("Grows while a request runs, also while it waits for flash: if it "
                            "stands still then, the engine hangs")
                      .Register(r)
                      .Add({})) {
  for (const Counter& counter : kCounters) {
    counters_.push_back(
        &prometheus::BuildCounter().Name(p + counter.name).Help(counter.help).Register(r));
  }
}

void FlashMetrics::Expose(const EngineStats& stats) {
  budget_.Set(static_cast<double>(stats.memory_budget));
  planned_.Set(static_cast<double>(stats.memory_planned));
  CatchUp(heartbeats_, stats.heartbeat);
  if (!stats.flash.used) return;
  info_
      .Add({{"kind", stats.flash.layers ? "layers" : "neurons"},
            {"bundle", stats.flash.bundle},
            {"method", stats.flash.method}})
      .Set(1);
  for (std::size_t i = 0; i < std::size(kCounters); ++i)
    CatchUp(counters_[i]->Add({}), kCounters[i].of(stats.flash.counters));
}

}  // namespace thermocline::server
