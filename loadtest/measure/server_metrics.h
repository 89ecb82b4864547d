// The server's counters, from its Prometheus metrics before and after a run.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "engine/base/json.h"

namespace thermocline::loadtest {

// Values by name, without the prefix ("thermocline_", "vllm:"). A name's samples are summed, except
// energy, which is kept by its label `rail`. Malformed lines are skipped.
using MetricValues = std::map<std::string, double>;
MetricValues ParseMetrics(std::string_view page);

// Returns the increase over the run: counters that both pages have, and values derived from them:
// cache_hit_ratio, draft_acceptance, joules_per_token by rail. Null if `after` has no known metric.
Json MetricsDelta(const MetricValues& before, const MetricValues& after);

// Running and waiting requests of the server; nullopt if it does not report them.
std::optional<double> RequestsLeft(const MetricValues& values);

}  // namespace thermocline::loadtest
