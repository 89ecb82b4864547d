#include "engine/offline/what_if.h"

#include "engine/base/index.h"
#include "engine/placement/solver.h"

namespace thermocline::offline {
namespace {

constexpr double kGainMin = 1.01;

std::int64_t Twice(std::int64_t bytes) { return bytes > INT64_MAX / 2 ? INT64_MAX : 2 * bytes; }

void SpeedUp(placement::Processor& p) {
  p.dense_bytes_per_s *= 2, p.rows_bytes_per_s *= 2, p.predictor_bytes_per_s *= 2;
  p.decide_bytes_per_s *= 2, p.whole_bytes_per_s *= 2;
  p.row_s /= 2, p.layer_s /= 2;
}

// Returns false if the machine does not have the resource.
bool Double(Limit limit, placement::Machine& m) {
  const bool hot = m.hot.has_value(), unified = hot && m.unified;
  switch (limit) {
    case Limit::kHotMemory:
      m.hot_bytes = Twice(m.hot_bytes);
      if (unified) m.memory_bytes = Twice(m.memory_bytes);
      return hot;
    case Limit::kMemory:
      m.memory_bytes = Twice(m.memory_bytes);
      return !unified;
    case Limit::kFlash:
      m.flash_reads_per_s *= 2, m.flash_bytes_per_s *= 2;
      return m.flash_reads_per_s > 0;
    case Limit::kColdSpeed:
      SpeedUp(m.cold);
      return !unified;
    case Limit::kHotSpeed:
      if (hot) SpeedUp(*m.hot);
      return hot;
    case Limit::kSync:
      m.sync_s /= 2;
      return hot && !unified;
    case Limit::kNothing:
      break;
  }
  return false;
}

}  // namespace

const char* LimitName(Limit limit) {
  static constexpr const char* kNames[] = {"hot memory",  "RAM",  "flash reads", "cold compute",
                                           "hot compute", "sync", "nothing"};
  return kNames[base::Index(limit)];
}

Result<std::vector<WhatIf>> SolveWhatIfs(const placement::Problem& problem) {
  std::vector<WhatIf> out;
  placement::Problem changed = problem;
  for (int i = 0; i < static_cast<int>(Limit::kNothing); ++i) {
    const auto limit = static_cast<Limit>(i);
    changed.machine = problem.machine;
    if (!Double(limit, changed.machine)) continue;
    ASSIGN_OR_RETURN(const placement::Placement placement, placement::Solve(changed));
    out.push_back({limit, placement.tokens_per_s()});
  }
  return out;
}

Limit WhatLimits(const placement::Placement& placement, const std::vector<WhatIf>& what_ifs) {
  WhatIf best{Limit::kNothing, placement.tokens_per_s() * kGainMin};
  for (const WhatIf& each : what_ifs) {
    if (each.tokens_per_s > best.tokens_per_s) best = each;
  }
  return best.limit;
}

}  // namespace thermocline::offline
