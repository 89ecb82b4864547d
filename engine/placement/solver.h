// Finds a placement of least time of a token, as problem.h models it, in whole batches of neurons:
// a bound from below, and a placement made from its prices. Placement::gap is what may lie between.
#pragma once

#include "engine/base/status.h"
#include "engine/placement/placement.h"
#include "engine/placement/problem.h"

namespace thermocline::placement {

// The same problem gives the same placement. InvalidArgument as Validate; ResourceExhausted, with a
// table of what is needed, where nothing fits.
//
// Every pair of homes and head is a case of its own: a problem of choosing, in each layer, how many
// batches are hot and how many are in RAM. The case with the least bound (relaxation.h) is tried
// first (repair.h), until no other can beat the best.
Result<Placement> Solve(const Problem& problem);

}  // namespace thermocline::placement
