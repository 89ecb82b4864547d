// The results of an invocation: the configuration, each run, the verdicts. The reports (terminal,
// JSON, HTML) are made from it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loadtest/measure/memory_watch.h"
#include "loadtest/measure/recorder.h"
#include "loadtest/options/options.h"

namespace thermocline::loadtest {

// The check that the server had finished all requests after the last client left.
struct IdleCheck {
  double left = 0;  // unfinished requests
  double waited_s = 0;
};

struct RunResult {
  std::string label = {};   // "concurrency 4"
  double load = 0;          // users, or requests per second
  double began_unix_s = 0;  // zero of the run's times
  std::unique_ptr<Recorder> recorder = {};
  Throughput throughput = {};
  Json server = {};  // MetricsDelta, or null
  MemoryWatch memory = {};
  std::optional<IdleCheck> idle = {};
  bool interrupted = false;
};

// Facts about the server, found before the run.
struct ServerInfo {
  std::string model = {}, software = {};
  std::vector<std::string> notes = {};
};

struct RunReport {
  LoadOptions options = {};
  ServerInfo server = {};
  std::string host = {}, started = {};  // of this program; local time
  std::vector<RunResult> runs = {};
  std::optional<std::size_t> knee = {};  // of a sweep: the run with the highest goodput
  // The reasons for exit status 1, as text; empty: success.
  std::vector<std::string> failures = {};

  bool several() const { return options.sweep.has_value(); }
  // The run that the SLO judges: the only one, or the knee.
  const RunResult& main_run() const { return runs[knee.value_or(runs.size() - 1)]; }
};

// Fills `failures` from the runs.
void CheckObjectives(RunReport& report);

// The JSON object for stdout.
Json ReportJson(const RunReport& report);

// Formats a measure: "12.3 ms", "1.20 s".
std::string HumanSeconds(double seconds);
// Formats a number with at most `digits` significant digits.
std::string HumanNumber(double value, int digits = 4);

// The report for the terminal.
std::string ReportText(const RunReport& report);

// A self-contained page without scripts. Text from servers is escaped.
std::string ReportHtml(const RunReport& report);

// The program's configuration as JSON, without the key.
Json ConfigJson(const RunReport& report);

}  // namespace thermocline::loadtest
