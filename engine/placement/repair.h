// Finds a placement that fits, starting from memory prices at which the relaxation nearly fits.
#pragma once

#include <optional>
#include <vector>

#include "engine/placement/relaxation.h"

namespace thermocline::placement {

struct Repaired {
  double seconds = 0;
  std::vector<CostTables::Choice> choices;  // [L]
};

// The fastest of the placements given by slightly higher prices, each improved by the changes of
// layers that gain most and fit. nullopt: none was found to fit.
std::optional<Repaired> Repair(const CostTables& tables, const Relaxation& relaxation,
                               const Case& which, const Prices& prices);

}  // namespace thermocline::placement
