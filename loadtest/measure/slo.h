// Service level objectives, which decide the exit code, and the limits of good requests.
//
// Grammar:  ttft:p95<1s,itl:p99<100ms,errors<1%,goodput>2
//   MEASURE:STATISTIC<LIMIT   ttft, itl, tpot, e2e, queue; mean, min, max, p0 to p100; a time in
//                             us, ms, s, m or h
//   errors<SHARE              failed requests of all, as 1% or 0.01
//   NAME>NUMBER               goodput, requests_per_s, tokens_per_s
// Goodput's limits are of one request: ttft<1s,tpot<50ms,itl<200ms (its largest gap),e2e<10s.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "loadtest/measure/figures.h"

namespace thermocline::loadtest {

struct Throughput {
  double elapsed_s = 0;  // from the first scheduled request to the last end
  double requests_per_s = 0, output_tokens_per_s = 0, prompt_tokens_per_s = 0;
  double goodput = 0;  // good requests per second
};
Throughput ThroughputOf(const Figures& figures, double elapsed_s);

struct SloTerm {
  enum class Quantity { kLatency, kErrors, kGoodput, kRequestsPerS, kTokensPerS };
  Quantity quantity = Quantity::kLatency;
  MeasureIndex measure = kTtft;  // for kLatency
  std::string statistic = {};    // "p95", "mean", ...
  bool below = true;             // the value must be below the limit; else above
  double limit = 0;              // seconds, a share or a rate
  std::string text = {};         // the term as given

  struct Verdict {
    bool met = false;
    std::optional<double> value = {};  // nullopt: no measurement, which misses the objective
  };
  Verdict Evaluate(const Figures& figures, const Throughput& throughput) const;
};

// InvalidArgument names the term.
Result<std::vector<SloTerm>> ParseSlo(std::string_view text);

// Limits for one request, in seconds.
struct GoodLimits {
  std::vector<std::pair<MeasureIndex, double>> limits = {};
  bool empty() const { return limits.empty(); }
  // True if the answer keeps the limits. A missing measure misses its limit, except gaps and TPOT,
  // which an answer of one token does not have.
  bool Holds(const Answer& answer, const Latencies& latencies) const;
};
Result<GoodLimits> ParseGoodLimits(std::string_view text);
// Returns the limits on latencies in an SLO, for a run without --goodput.
GoodLimits LimitsOf(const std::vector<SloTerm>& slo);

// Parses "90", "1.5s", "200ms", "10m", "24h" into seconds. nullopt for anything else, and for
// negative numbers.
std::optional<double> ParseDuration(std::string_view text);

}  // namespace thermocline::loadtest
