// The statistics of a run, or of one kind of its requests.
#pragma once

#include <array>
#include <map>
#include <string>

#include "engine/base/index.h"
#include "loadtest/measure/samples.h"
#include "loadtest/workload/answer.h"

namespace thermocline::loadtest {

// The latencies of one answer, in seconds. t0 is the scheduled time in an open loop, the time of
// sending in a closed loop.
struct Latencies {
  double queue = 0;               // t_sent - t_scheduled
  std::optional<double> ttft;     // t_first_content - t0
  double e2e = 0;                 // t_last - t0
  std::optional<double> tpot;     // (e2e - ttft) / (tokens - 1)
  std::optional<double> itl_max;  // the largest gap
};
Latencies LatenciesOf(const Answer& answer, bool open_loop);

// A latency measure: its name in SLOs and JSON, its title, and its formula.
struct Measure {
  const char* name;
  const char* title;
  const char* formula;
};
enum MeasureIndex { kTtft, kItl, kTpot, kE2e, kQueue, kNumMeasures };
inline constexpr Measure kMeasures[kNumMeasures] = {
    {"ttft", "TTFT", "t_first_content - t0"},
    {"itl", "ITL", "every t_chunk[i + 1] - t_chunk[i]"},
    {"tpot", "TPOT", "(e2e - ttft) / (tokens - 1), per request"},
    {"e2e", "E2E", "t_last - t0"},
    {"queue", "Queue delay", "t_sent - t_sched"},
};

struct Figures {
  std::array<Samples, kNumMeasures> latency;  // of good answers; queue: of all sent requests
  std::array<std::int64_t, kNumOutcomes> outcomes{};
  std::int64_t requests = 0, chunks = 0, without_usage = 0;
  // Sums over all answers, including those that ended early.
  std::int64_t prompt_tokens = 0, output_tokens = 0, cached_tokens = 0;
  std::int64_t good = 0;  // ok, and within the limits of goodput

  void Add(const Answer& answer, const Latencies& latencies, bool is_good);
  std::int64_t count(Outcome outcome) const { return outcomes[base::Index(outcome)]; }
  // Returns the number of failures: errors, timeouts, and rejections for lack of capacity.
  std::int64_t failed() const;
};

}  // namespace thermocline::loadtest
