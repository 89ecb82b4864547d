// How often each layer uses each of its experts, as a picture.
#pragma once

#include <string>
#include <vector>

#include "engine/offline/activation_stats.h"

namespace thermocline::tools {

// `curves`, an SVG, with a map above it: a row for each layer, a column for each expert, the most
// used first; the darker, the more of the tokens chose it. Layers without experts have empty rows.
std::string WithExpertMap(const std::string& curves,
                          const std::vector<offline::ActivationCounter>& layers);

}  // namespace thermocline::tools
