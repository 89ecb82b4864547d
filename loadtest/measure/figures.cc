#include "loadtest/measure/figures.h"

#include <algorithm>

#include "engine/base/index.h"

namespace thermocline::loadtest {

Latencies LatenciesOf(const Answer& answer, bool open_loop) {
  const double t0 = open_loop ? answer.t_scheduled : answer.t_sent;
  Latencies latencies{.queue = answer.t_sent - answer.t_scheduled,
                      .ttft = {},
                      .e2e = answer.t_last - t0,
                      .tpot = {},
                      .itl_max = {}};
  if (answer.t_first_content.has_value()) {
    latencies.ttft = *answer.t_first_content - t0;
    if (answer.tokens() > 1)
      latencies.tpot = (latencies.e2e - *latencies.ttft) / static_cast<double>(answer.tokens() - 1);
  }
  for (std::size_t i = 1; i < answer.t_chunks.size(); ++i) {
    const double gap = answer.t_chunks[i] - answer.t_chunks[i - 1];
    latencies.itl_max = std::max(latencies.itl_max.value_or(0), gap);
  }
  return latencies;
}

void Figures::Add(const Answer& answer, const Latencies& latencies, bool is_good) {
  ++requests;
  ++outcomes[base::Index(answer.outcome)];
  chunks += answer.chunks;
  prompt_tokens += answer.prompt_tokens.value_or(0);
  cached_tokens += answer.cached_tokens.value_or(0);
  output_tokens += answer.tokens();
  good += is_good;
  latency[kQueue].Add(latencies.queue);
  if (answer.outcome != Outcome::kOk) return;
  without_usage += !answer.output_tokens.has_value();
  latency[kE2e].Add(latencies.e2e);
  if (latencies.ttft.has_value()) latency[kTtft].Add(*latencies.ttft);
  if (latencies.tpot.has_value()) latency[kTpot].Add(*latencies.tpot);
  for (std::size_t i = 1; i < answer.t_chunks.size(); ++i)
    latency[kItl].Add(answer.t_chunks[i] - answer.t_chunks[i - 1]);
}

std::int64_t Figures::failed() const {
  return count(Outcome::kError) + count(Outcome::kTimeout) + count(Outcome::kRateLimited) +
         count(Outcome::kUnavailable);
}

}  // namespace thermocline::loadtest
