// A placement that fits, from prices of the memories at which the relaxation fits nearly.
#pragma once

#include <optional>
#include <vector>

#include "engine/placement/relaxation.h"

namespace thermocline::placement {

struct Repaired {
  double seconds = 0;
  std::vector<CostTables::Choice> choices;  // [L]
};

// The fastest of the placements that slightly higher prices make, each changed in the layers that
// gain most and fit. Nothing: none was found to fit.
std::optional<Repaired> Repair(const CostTables& tables, const Relaxation& relaxation,
                               const Case& which, const Prices& prices);

}  // namespace thermocline::placement
