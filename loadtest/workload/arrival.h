// The start times of requests in an open loop, which do not depend on the server.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "loadtest/workload/random.h"

namespace thermocline::loadtest {

class ArrivalProcess {
 public:
  virtual ~ArrivalProcess() = default;
  // Seconds since the start of the run, never decreasing; nullopt: no more requests.
  virtual std::optional<double> Next() = 0;
};

// Gaps from a gamma distribution with mean 1 / rate. Shape (burstiness) 1 is a Poisson process;
// smaller shapes are bursty, larger ones more regular. Requires: rate, shape > 0.
std::unique_ptr<ArrivalProcess> GammaArrivals(double rate, double shape, std::uint64_t seed);
// Starts the k-th request (from 0) at k / rate. Requires: rate > 0.
std::unique_ptr<ArrivalProcess> ConstantArrivals(double rate);
// Starts requests at the given times. Requires: sorted.
std::unique_ptr<ArrivalProcess> ArrivalsAt(std::vector<double> times);

// A request of a trace.
struct TraceEntry {
  double time = 0;                        // seconds since the first
  int prompt_tokens = 0, max_tokens = 0;  // 0 = not given
};
// JSONL: {"t": seconds, "prompt_tokens", "max_tokens"}; also {"timestamp": milliseconds,
// "input_length", "output_length"}, the names of Mooncake's traces. Sorted by time, shifted to
// begin at 0 and divided by `speed`. InvalidArgument names the line.
Result<std::vector<TraceEntry>> ReadTrace(const std::string& path, double speed);

}  // namespace thermocline::loadtest
