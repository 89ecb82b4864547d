// When requests of an open loop begin, whatever the server does.
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
  // Seconds since the run began, never falling; nothing: no more requests.
  virtual std::optional<double> Next() = 0;
};

// Gaps of a gamma distribution with mean 1 / rate. Shape (burstiness) 1 is a Poisson process, below
// 1 come bursts, above 1 it is more regular. Requires: rate, shape > 0.
std::unique_ptr<ArrivalProcess> GammaArrivals(double rate, double shape, std::uint64_t seed);
// The k-th request (from 0) at k / rate. Requires: rate > 0.
std::unique_ptr<ArrivalProcess> ConstantArrivals(double rate);
// The given times. Requires: sorted.
std::unique_ptr<ArrivalProcess> ArrivalsAt(std::vector<double> times);

// A request of a trace.
struct TraceEntry {
  double time = 0;                        // seconds since the first
  int prompt_tokens = 0, max_tokens = 0;  // 0: not said
};
// JSONL: {"t": seconds, "prompt_tokens", "max_tokens"}; also {"timestamp": milliseconds,
// "input_length", "output_length"}, the names of Mooncake's traces. Sorted by time, which is moved
// to begin at 0 and divided by `speed`. InvalidArgument names the line.
Result<std::vector<TraceEntry>> ReadTrace(const std::string& path, double speed);

}  // namespace thermocline::loadtest
