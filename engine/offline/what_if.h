// The bottleneck of a placement: the speedup of a token if each resource were doubled.
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
  double tokens_per_s = 0;  // with the resource doubled; sync: halved
};

// One entry for each resource of the machine, solved again with it doubled. Errors as Solve.
Result<std::vector<WhatIf>> SolveWhatIfs(const placement::Problem& problem);

// Returns the resource whose doubling gains most; kNothing if the gain is below 1 percent.
Limit WhatLimits(const placement::Placement& placement, const std::vector<WhatIf>& what_ifs);

}  // namespace thermocline::offline
