// Statistics of flash while `bench` decodes tokens.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/api/flash_stats.h"
#include "engine/base/json.h"
#include "engine/base/ratio.h"
#include "engine/load/loaded_model.h"

namespace thermocline::tools {

// Sums over runs. Thread-compatible.
class FlashRun {
 public:
  // Adds a run of `tokens` decoded in `seconds` between the two counters.
  void Add(const FlashCounters& before, const FlashCounters& after, double seconds, int tokens);

  Json ToJson(const load::LoadedModel& model) const;
  // Prints to standard output, with the memory plan.
  void Print(const load::LoadedModel& model) const;

 private:
  double hit_rate() const { return base::Ratio(sum_.hits, sum_.needed); }
  double Share(double seconds) const { return seconds / std::max(1e-9, seconds_); }
  double PerToken(std::int64_t count) const { return base::Ratio(count, std::max(1, tokens_)); }

  FlashCounters sum_;
  double seconds_ = 0;
  int tokens_ = 0;
};

}  // namespace thermocline::tools
