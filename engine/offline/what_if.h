// The limit of a placement: how much faster a token would be with twice of each thing.
#pragma once

#include <string>
#include <vector>

#include "engine/placement/placement.h"
#include "engine/placement/problem.h"

namespace thermocline::offline {

enum class Limit { kHotMemory, kMemory, kFlash, kColdSpeed, kHotSpeed, kSync, kNothing };
// "hot memory", "RAM", "flash reads", "cold compute", "hot compute", "sync", "nothing".
const char* LimitName(Limit limit);

struct WhatIf {
  Limit limit = Limit::kNothing;
  double tokens_per_s = 0;  // with twice of it; sync: half
};

// One entry for each thing that the machine has, solved anew. Errors as Solve.
Result<std::vector<WhatIf>> SolveWhatIfs(const placement::Problem& problem);

// Returns the resource that gains most when doubled; kNothing if that is below a hundredth.
Limit WhatLimits(const placement::Placement& placement, const std::vector<WhatIf>& what_ifs);

}  // namespace thermocline::offline
