// Finds a placement with the least time per token under the model of problem.h, in whole batches of
// neurons: a lower bound, and a placement derived from its prices. Placement::gap is the distance
// between the two.
#pragma once

#include "engine/base/status.h"
#include "engine/placement/placement.h"
#include "engine/placement/problem.h"

namespace thermocline::placement {

// Deterministic. InvalidArgument as Validate; ResourceExhausted, with a table of the memory needed,
// if nothing fits.
//
// Every pair of homes and head is a separate case: choose in each layer how many batches are hot
// and how many are in RAM. The case with the least bound (relaxation.h) is tried first (repair.h),
// until no other case can beat the best placement.
Result<Placement> Solve(const Problem& problem);

}  // namespace thermocline::placement
