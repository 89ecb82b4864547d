// Writes the report for the terminal, and judges the runs.
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "loadtest/report/run_report.h"

namespace thermocline::loadtest {
namespace {

// Appends in the format of std::printf.
[[gnu::format(printf, 2, 3)]] void Print(std::string& out, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  out += line;
}

void PrintOutcomes(std::string& out, const Figures& figures) {
  Print(out, "requests     %lld", static_cast<long long>(figures.requests));
  for (int i = 0; i < kNumOutcomes; ++i) {
    const auto outcome = static_cast<Outcome>(i);
    const long long count = figures.count(outcome);
    if (count > 0 || outcome == Outcome::kOk)
      Print(out, ", %s %lld", std::string(OutcomeName(outcome)).c_str(), count);
  }
  out += '\n';
}

void PrintLatencies(std::string& out, const Figures& figures) {
  Print(out, "%-12s %7s %9s %9s %9s", "", "count", "mean", "std", "min");
  for (const NamedPercentile& percentile : kPercentiles) Print(out, " %9s", percentile.name);
  Print(out, " %9s\n", "max");
  for (int i = 0; i < kNumMeasures; ++i) {
    const Samples& s = figures.latency[i];
    if (s.count() == 0) continue;
    Print(out, "%-12s %7llu", kMeasures[i].title, static_cast<unsigned long long>(s.count()));
    const auto cell = [&](double value) { Print(out, " %9s", HumanSeconds(value).c_str()); };
    for (const double value : {s.mean(), s.std_dev(), s.min()}) cell(value);
    for (const NamedPercentile& percentile : kPercentiles) cell(s.Percentile(percentile.q));
    cell(s.max());
    Print(out, "  %s\n", kMeasures[i].formula);
  }
}

void PrintThroughput(std::string& out, const RunResult& run) {
  const Throughput& t = run.throughput;
  const Figures& all = run.recorder->all();
  const double tpot = all.latency[kTpot].mean();
  Print(out, "throughput   %s output tokens/s, %s prompt tokens/s, %s requests/s in %s\n",
        HumanNumber(t.output_tokens_per_s).c_str(), HumanNumber(t.prompt_tokens_per_s).c_str(),
        HumanNumber(t.requests_per_s).c_str(), HumanSeconds(t.elapsed_s).c_str());
  if (tpot > 0)
    Print(out, "per user     %s tokens/s (1 / mean TPOT)\n", HumanNumber(1 / tpot).c_str());
  Print(out, "tokens       prompt %lld (cached %lld), output %lld in %lld chunks\n",
        static_cast<long long>(all.prompt_tokens), static_cast<long long>(all.cached_tokens),
        static_cast<long long>(all.output_tokens), static_cast<long long>(all.chunks));
  if (all.without_usage > 0)
    Print(out, "             %lld answers had no usage: a chunk was counted as a token\n",
          static_cast<long long>(all.without_usage));
  if (run.recorder->limits().empty()) return;
  Print(out, "goodput      %s good requests/s, %s%% of all\n", HumanNumber(t.goodput).c_str(),
        HumanNumber(100.0 * static_cast<double>(all.good) /
                    static_cast<double>(std::max<std::int64_t>(1, all.requests)))
            .c_str());
}

void PrintSlo(std::string& out, const RunReport& report, const RunResult& run) {
  for (const SloTerm& term : report.options.slo) {
    const auto verdict = term.Evaluate(run.recorder->all(), run.throughput);
    const std::string value = !verdict.value.has_value() ? "not measured"
                              : term.quantity == SloTerm::Quantity::kLatency
                                  ? HumanSeconds(*verdict.value)
                                  : HumanNumber(*verdict.value);
    Print(out, "SLO          %-6s %s (%s)\n", verdict.met ? "met" : "MISSED", term.text.c_str(),
          value.c_str());
  }
}

void PrintRun(std::string& out, const RunReport& report, const RunResult& run) {
  PrintOutcomes(out, run.recorder->all());
  PrintThroughput(out, run);
  PrintLatencies(out, run.recorder->all());
  if (run.recorder->kinds().size() > 1) {
    for (const auto& [kind, figures] : run.recorder->kinds()) {
      Print(out, "\n%s\n", kind.c_str());
      PrintOutcomes(out, figures);
      PrintLatencies(out, figures);
    }
  }
  if (!run.server.is_null()) out += "server       " + run.server.Dump() + "\n";
  if (!run.memory.samples().empty()) out += "memory       " + run.memory.ToJson().Dump() + "\n";
  for (const auto& [message, count] : run.recorder->errors())
    Print(out, "error        %lld x %.400s\n", static_cast<long long>(count), message.c_str());
  PrintSlo(out, report, run);
}

// Prints two lines per step.
void PrintSteps(std::string& out, const RunReport& report) {
  Print(out, "%12s %10s %12s %10s %10s %10s %8s\n",
        report.options.sweep == SweepOver::kRate ? "rate" : "concurrency", "req/s", "tokens/s",
        "goodput", "TTFT p95", "ITL p99", "failed");
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    const RunResult& run = report.runs[i];
    const Figures& all = run.recorder->all();
    Print(out, "%12s %10s %12s %10s %10s %10s %8lld%s\n", HumanNumber(run.load).c_str(),
          HumanNumber(run.throughput.requests_per_s).c_str(),
          HumanNumber(run.throughput.output_tokens_per_s).c_str(),
          HumanNumber(run.throughput.goodput).c_str(),
          HumanSeconds(all.latency[kTtft].Percentile(95)).c_str(),
          HumanSeconds(all.latency[kItl].Percentile(99)).c_str(),
          static_cast<long long>(all.failed()), report.knee == i ? "  <- knee" : "");
  }
  out += '\n';
}

// Adds the reasons why a run failed, if it did.
void JudgeRun(const RunReport& report, const RunResult& run, std::vector<std::string>& failures) {
  const Figures& all = run.recorder->all();
  if (all.count(Outcome::kOk) == 0 && all.count(Outcome::kCancelled) == 0 &&
      all.count(Outcome::kRefused) == 0) {
    const auto& errors = run.recorder->errors();
    failures.push_back(
        StrCat("no request succeeded", errors.empty() ? "" : ": " + errors.begin()->first));
  }
  if (report.options.workload.kind == WorkloadKind::kMalformed) {
    const auto found = run.recorder->kinds().find("malformed");
    if (found != run.recorder->kinds().end() && found->second.count(Outcome::kError) > 0)
      failures.push_back(StrCat(found->second.count(Outcome::kError),
                                " malformed requests were not refused with 4xx"));
  }
  if (run.idle.has_value() && run.idle->left > 0)
    failures.push_back(StrCat("the server still has ", run.idle->left, " requests, ",
                              HumanSeconds(run.idle->waited_s), " after the last client left"));
}

}  // namespace

std::string HumanNumber(double value, int digits) {
  char text[40];
  const bool whole = std::abs(value) >= std::pow(10, digits);
  std::snprintf(text, sizeof(text), "%.*f", 0, value);
  if (!whole) std::snprintf(text, sizeof(text), "%.*g", digits, value);
  return text;
}

std::string HumanSeconds(double seconds) {
  const double size = std::abs(seconds);
  if (size < 1e-3) return HumanNumber(seconds * 1e6, 3) + " us";
  if (size < 1) return HumanNumber(seconds * 1e3, 3) + " ms";
  return HumanNumber(seconds, 4) + " s";
}

void CheckObjectives(RunReport& report) {
  if (report.runs.empty()) return;
  // Steps of a sweep beyond its knee may fail.
  const RunResult& run = report.main_run();
  JudgeRun(report, run, report.failures);
  for (const SloTerm& term : report.options.slo) {
    if (!term.Evaluate(run.recorder->all(), run.throughput).met)
      report.failures.push_back("SLO missed: " + term.text);
  }
  const auto slope = run.memory.slope_bytes_per_hour();
  if (report.options.rss_slope_max.has_value()) {
    if (!slope.has_value()) {
      report.failures.emplace_back("--rss-slope-max: too few readings of the memory");
    } else if (*slope > *report.options.rss_slope_max) {
      report.failures.push_back(
          StrCat("the memory of --pid grows by ", base::HumanBytes(*slope), " an hour"));
    }
  }
}

std::string ReportText(const RunReport& report) {
  std::string out;
  const Json config = ConfigJson(report);
  Print(out, "%.200s  model %.100s  %s loop, %s, seed %s\n\n",
        config.Find("url")->as_string().c_str(), report.server.model.c_str(),
        config.Find("loop")->as_string().c_str(), config.Find("workload")->as_string().c_str(),
        config.Find("seed")->Dump().c_str());
  if (report.several()) PrintSteps(out, report);
  if (!report.runs.empty()) PrintRun(out, report, report.main_run());
  Print(out, "\nt0 is t_%s: %s loop. A chunk is not a token: tokens are the server's usage.\n",
        report.options.open_loop() ? "sched" : "sent",
        report.options.open_loop() ? "open" : "closed");
  return out;
}

}  // namespace thermocline::loadtest
