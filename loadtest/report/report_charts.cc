#include "loadtest/report/report_charts.h"

#include "engine/charts/chart.h"

namespace thermocline::loadtest {
namespace {

using charts::Axis;
using charts::Chart;
using charts::Series;

Axis FromZero(std::string label) { return {.label = std::move(label), .min = 0}; }
Axis OverPowers(std::string label) { return {.label = std::move(label), .log = true}; }

std::string Rendered(Chart chart) {
  constexpr double kHeight = 320;
  constexpr std::size_t kColors = 6;  // in the page's style
  for (std::size_t i = 0; i < chart.series.size(); ++i)
    chart.series[i].color = StrCat("var(--c", i % kColors, ")");
  return charts::RenderInline(chart, kHeight);
}

std::string ThroughputChart(const Timeline& timeline) {
  Series tokens;
  for (std::size_t i = 0; i < timeline.bins().size(); ++i)
    tokens.points.emplace_back((static_cast<double>(i) + 0.5) * timeline.bin_s(),
                               timeline.bins()[i].tokens / timeline.bin_s());
  return Rendered({.title = "Output tokens",
                   .x = FromZero("seconds"),
                   .y = FromZero("tokens/s"),
                   .series = {tokens}});
}

std::string InFlightChart(const Timeline& timeline) {
  Series under_way{.label = "under way"}, answered{.label = "answered/s"},
      failed{.label = "failed/s"};
  for (std::size_t i = 0; i < timeline.bins().size(); ++i) {
    const Timeline::Bin& bin = timeline.bins()[i];
    const double at = (static_cast<double>(i) + 0.5) * timeline.bin_s();
    under_way.points.emplace_back(at, bin.in_flight);
    answered.points.emplace_back(at, bin.ok / timeline.bin_s());
    failed.points.emplace_back(at, bin.failed / timeline.bin_s());
  }
  return Rendered({.title = "Requests",
                   .x = FromZero("seconds"),
                   .y = FromZero(""),
                   .series = {under_way, answered, failed}});
}

std::string AnswersChart(const Recorder& recorder) {
  Series e2e{.kind = Series::Kind::kDots, .label = "E2E"},
      ttft{.kind = Series::Kind::kDots, .label = "TTFT"};
  for (const AnswerDot& dot : recorder.dots()) {
    e2e.points.emplace_back(dot.t_scheduled, dot.e2e);
    ttft.points.emplace_back(dot.t_scheduled, dot.ttft);
  }
  return Rendered({.title = "Each answer",
                   .x = FromZero("scheduled, seconds"),
                   .y = OverPowers("seconds"),
                   .series = {e2e, ttft}});
}

std::string PercentileChart(const Figures& figures) {
  Chart chart{.title = "By percentile", .x = FromZero("percentile"), .y = OverPowers("seconds")};
  for (const MeasureIndex measure : {kTtft, kItl, kTpot, kE2e}) {
    const Samples& samples = figures.latency[measure];
    Series& line = chart.series.emplace_back();
    line.label = kMeasures[measure].title;
    for (int q = 0; samples.count() > 0 && q <= 100; ++q)
      line.points.emplace_back(q, samples.Percentile(q));
  }
  return Rendered(std::move(chart));
}

std::string MemoryChart(const MemoryWatch& memory) {
  constexpr double kMib = 1 << 20;
  Series rss{.label = "RSS"}, swap{.label = "swap"};
  for (const MemoryWatch::Sample& sample : memory.samples()) {
    rss.points.emplace_back(sample.time, sample.memory.rss_bytes / kMib);
    swap.points.emplace_back(sample.time, sample.memory.swap_bytes / kMib);
  }
  return Rendered({.title = "Memory of the server",
                   .x = FromZero("seconds"),
                   .y = FromZero("MiB"),
                   .series = {rss, swap}});
}

}  // namespace

std::string RunCharts(const RunResult& run) {
  const Recorder& recorder = *run.recorder;
  return ThroughputChart(recorder.timeline()) + AnswersChart(recorder) +
         PercentileChart(recorder.all()) + InFlightChart(recorder.timeline()) +
         (run.memory.samples().empty() ? "" : MemoryChart(run.memory));
}

std::string SweepCharts(const std::vector<RunResult>& runs) {
  Series good{.label = "goodput, requests"}, all{.label = "requests"};
  Series ttft_p50{.label = "TTFT p50"}, ttft_p95{.label = "TTFT p95"}, itl_p99{.label = "ITL p99"};
  for (const RunResult& run : runs) {
    const auto& latency = run.recorder->all().latency;
    good.points.emplace_back(run.load, run.throughput.goodput);
    all.points.emplace_back(run.load, run.throughput.requests_per_s);
    ttft_p50.points.emplace_back(run.load, latency[kTtft].Percentile(50));
    ttft_p95.points.emplace_back(run.load, latency[kTtft].Percentile(95));
    itl_p99.points.emplace_back(run.load, latency[kItl].Percentile(99));
  }
  return Rendered({.title = "What the server gives",
                   .x = FromZero("load"),
                   .y = FromZero("per second"),
                   .series = {good, all}}) +
         Rendered({.title = "What its users wait",
                   .x = FromZero("load"),
                   .y = OverPowers("seconds"),
                   .series = {ttft_p50, ttft_p95, itl_p99}});
}

}  // namespace thermocline::loadtest
