// Writes the report as one JSON object.
#include "loadtest/report/run_report.h"

namespace thermocline::loadtest {
namespace {

Json Count(std::int64_t value) { return value; }

Json RangeJson(const TokenRange& range) {
  return range.low == range.high ? Json(range.low) : Json(StrCat(range.low, "-", range.high));
}

Json OutcomesJson(const Figures& figures) {
  Json json = Json::Object{{"total", Count(figures.requests)}};
  for (int i = 0; i < kNumOutcomes; ++i) {
    const auto outcome = static_cast<Outcome>(i);
    json.Set(OutcomeName(outcome), Count(figures.count(outcome)));
  }
  return json;
}

Json LatencyJson(const Figures& figures) {
  Json json = Json::Object{};
  for (int i = 0; i < kNumMeasures; ++i)
    json.Set(StrCat(kMeasures[i].name, "_s"), figures.latency[i].ToJson());
  return json;
}

Json TokensJson(const Figures& figures) {
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return whole > 0 ? Json(static_cast<double>(part) / static_cast<double>(whole)) : Json();
  };
  return Json::Object{{"prompt", Count(figures.prompt_tokens)},
                      {"cached", Count(figures.cached_tokens)},
                      {"output", Count(figures.output_tokens)},
                      {"chunks", Count(figures.chunks)},
                      {"per_chunk", share(figures.output_tokens, figures.chunks)},
                      {"answers_without_usage", Count(figures.without_usage)}};
}

Json KindsJson(const Recorder& recorder) {
  Json json = Json::Object{};
  for (const auto& [kind, figures] : recorder.kinds()) {
    json.Set(kind, Json::Object{{"requests", OutcomesJson(figures)},
                                {"latency", LatencyJson(figures)},
                                {"tokens", TokensJson(figures)}});
  }
  return json;
}

Json SloJson(const RunReport& report, const RunResult& run) {
  if (report.options.slo.empty()) return nullptr;
  Json::Array terms;
  bool met = true;
  for (const SloTerm& term : report.options.slo) {
    const auto verdict = term.Evaluate(run.recorder->all(), run.throughput);
    met = met && verdict.met;
    terms.push_back(
        Json::Object{{"term", term.text},
                     {"limit", term.limit},
                     {"value", verdict.value.has_value() ? Json(*verdict.value) : Json()},
                     {"met", Json(verdict.met)}});
  }
  return Json::Object{{"met", Json(met)}, {"terms", terms}};
}

Json ThroughputJson(const RunResult& run) {
  const Samples& tpot = run.recorder->all().latency[kTpot];
  const Throughput& t = run.throughput;
  return Json::Object{
      {"elapsed_s", t.elapsed_s},
      {"requests_per_s", t.requests_per_s},
      {"output_tokens_per_s", t.output_tokens_per_s},
      {"prompt_tokens_per_s", t.prompt_tokens_per_s},
      {"output_tokens_per_s_per_user", tpot.mean() > 0 ? Json(1 / tpot.mean()) : Json()}};
}

Json GoodputJson(const RunResult& run) {
  const Recorder& recorder = *run.recorder;
  if (recorder.limits().empty()) return nullptr;
  Json limits = Json::Object{};
  for (const auto& [measure, seconds] : recorder.limits().limits)
    limits.Set(kMeasures[measure].name, seconds);
  const Figures& all = recorder.all();
  const double share =
      all.requests > 0 ? static_cast<double>(all.good) / static_cast<double>(all.requests) : 0;
  return Json::Object{{"limits_s", limits},
                      {"good", Count(all.good)},
                      {"good_fraction", share},
                      {"good_requests_per_s", run.throughput.goodput}};
}

Json RunJson(const RunReport& report, const RunResult& run) {
  Json::Array errors;
  for (const auto& [message, count] : run.recorder->errors())
    errors.push_back(Json::Object{{"message", message}, {"count", Count(count)}});
  Json idle;
  if (run.idle.has_value())
    idle = Json::Object{{"requests_left", run.idle->left}, {"waited_s", run.idle->waited_s}};
  return Json::Object{{"label", run.label},
                      {"load", run.load},
                      {"began_unix_s", run.began_unix_s},
                      {"interrupted", Json(run.interrupted)},
                      {"requests", OutcomesJson(run.recorder->all())},
                      {"latency", LatencyJson(run.recorder->all())},
                      {"tokens", TokensJson(run.recorder->all())},
                      {"throughput", ThroughputJson(run)},
                      {"goodput", GoodputJson(run)},
                      {"slo", SloJson(report, run)},
                      {"kinds", KindsJson(*run.recorder)},
                      {"errors", errors},
                      {"server", run.server},
                      {"memory", run.memory.ToJson()},
                      {"idle_after", idle}};
}

Json FormulasJson() {
  Json json = Json::Object{};
  for (const Measure& measure : kMeasures)
    json.Set(StrCat(measure.name, "_s"), std::string_view(measure.formula));
  json.Set("t0", "t_sched in open loop, t_sent in closed loop");
  json.Set("output_tokens_per_s", "output tokens / elapsed_s");
  json.Set("elapsed_s", "from the first t_sched to the last t_last");
  json.Set("output_tokens_per_s_per_user", "1 / mean TPOT");
  return json;
}

}  // namespace

Json ConfigJson(const RunReport& report) {
  const LoadOptions& o = report.options;
  const WorkloadOptions& w = o.workload;
  Json::Array arguments(o.arguments.begin(), o.arguments.end());
  Json config =
      Json::Object{{"url", o.api == Api::kHttp ? o.url.origin() + o.url.path : o.url.authority()},
                   {"api", kApiNames[static_cast<std::size_t>(o.api)]},
                   {"model", report.server.model},
                   {"software", report.server.software},
                   {"loop", o.open_loop() ? "open" : "closed"},
                   {"workload", kWorkloadNames[static_cast<std::size_t>(w.kind)]},
                   {"prompt_tokens", RangeJson(w.prompt_tokens)},
                   {"max_tokens", RangeJson(w.max_tokens)},
                   {"ignore_eos", Json(w.ignore_eos)},
                   {"tokens_per_word", w.scale.measured ? Json(w.scale.tokens_per_word) : Json()},
                   {"seed", Json::OfUnsigned(w.seed)},
                   {"warmup", o.warmup},
                   {"timeout_s", o.timeout_s},
                   {"client_host", report.host},
                   {"started", report.started},
                   {"arguments", arguments}};
  if (!o.sweep.has_value() && !o.open_loop()) config.Set("concurrency", o.concurrency);
  if (!o.sweep.has_value() && o.rate > 0) config.Set("rate", o.rate);
  if (!o.trace_file.empty()) config.Set("trace", o.trace_file);
  if (!o.dataset_file.empty()) config.Set("dataset", o.dataset_file);
  return config;
}

Json ReportJson(const RunReport& report) {
  Json::Array failures(report.failures.begin(), report.failures.end());
  Json::Array notes(report.server.notes.begin(), report.server.notes.end());
  Json json = Json::Object{{"tool", "thermocline-load 0.1.0"},
                           {"config", ConfigJson(report)},
                           {"formulas", FormulasJson()},
                           {"failures", failures},
                           {"notes", notes}};
  if (report.runs.empty()) return json;
  const Json main_run = RunJson(report, report.main_run());
  for (const auto& [key, value] : main_run.as_object()) json.Set(key, value);
  if (!report.several()) return json;
  Json::Array steps;
  for (const RunResult& run : report.runs) steps.push_back(RunJson(report, run));
  json.Set("steps", steps);
  json.Set("knee", report.knee.has_value() ? Json(report.runs[*report.knee].load) : Json());
  return json;
}

}  // namespace thermocline::loadtest
