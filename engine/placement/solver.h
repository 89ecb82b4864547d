// Finds the placement that minimises the time of a token, as problem.h models it, in whole batches
// of neurons: exactly, to a relative 1e-12. Where the proof would take more than some millions of
// partial placements it stops, and Placement::gap says what is left, often 1e-5 of the token.
#pragma once

#include "engine/base/status.h"
#include "engine/placement/placement.h"
#include "engine/placement/problem.h"

namespace thermocline::placement {

// The same problem gives the same placement. InvalidArgument as Validate; ResourceExhausted, with a
// table of what is needed, where nothing fits.
//
// Every pair of homes and head is a case of its own: a problem of choosing, in each layer, how many
// batches are hot and how many are in RAM. Cases are bounded by relaxation.h and searched by core.h
// in windows above their bound, the least bound first, until none can beat the best.
Result<Placement> Solve(const Problem& problem);

}  // namespace thermocline::placement
