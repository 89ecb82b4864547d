// The results of an invocation: the configuration, each run, the verdicts. The three reports
// (terminal, JSON, HTML) show it.
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
  double left = 0;  // requests that it still has
  double waited_s = 0;
};

struct RunResult {
  std::string label = {};   // "concurrency 4"
  double load = 0;          // users, or requests per second
  double began_unix_s = 0;  // the zero of its times
  std::unique_ptr<Recorder> recorder = {};
  Throughput throughput = {};
  Json server = {};  // MetricsDelta, or null
  MemoryWatch memory = {};
  std::optional<IdleCheck> idle = {};
  bool interrupted = false;
};

// The facts about the server known before the run.
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
  // The reasons for exit status 1, for people; empty: done.
  std::vector<std::string> failures = {};

  bool several() const { return options.sweep.has_value(); }
  // The run whose SLO counts: the only one, or the knee.
  const RunResult& main_run() const { return runs[knee.value_or(runs.size() - 1)]; }
};

// Fills `failures` from the runs.
void Judge(RunReport& report);

// The JSON object on stdout.
Json ReportJson(const RunReport& report);

// Formats a measure: "12.3 ms", "1.20 s".
std::string HumanSeconds(double seconds);
// At most `digits` significant digits.
std::string HumanNumber(double value, int digits = 4);

// For the terminal.
std::string ReportText(const RunReport& report);

// A page of its own: no script, nothing loaded from elsewhere. What servers said is escaped.
std::string ReportHtml(const RunReport& report);

// The program's configuration as JSON, without the key.
Json ConfigJson(const RunReport& report);

}  // namespace thermocline::loadtest
