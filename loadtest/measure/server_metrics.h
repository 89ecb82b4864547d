// The server's counters, from its Prometheus page before and after a run.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "engine/base/json.h"

namespace thermocline::loadtest {

// Values by name; a name's samples are added up, but energy is kept by its label `rail`. The names
// lack what stands before them ("thermocline_", "vllm:"). Lines that are none are passed over.
using MetricValues = std::map<std::string, double>;
MetricValues ParseMetrics(std::string_view page);

// Returns the increase over the run: counters that both pages have, and figures derived from them:
// cache_hit_ratio, draft_acceptance, joules_per_token by rail. Null if `after` has nothing we know.
Json MetricsDelta(const MetricValues& before, const MetricValues& after);

// Requests that the server still has, begun or waiting; nothing if it does not say.
std::optional<double> RequestsLeft(const MetricValues& values);

}  // namespace thermocline::loadtest
