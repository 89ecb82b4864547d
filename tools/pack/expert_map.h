// A picture of how often each layer uses each of its experts.
#pragma once

#include <string>
#include <vector>

#include "engine/offline/activation_stats.h"

namespace thermocline::tools {

// `curves`, an SVG, with a map above it: a row per layer, a column per expert, the most used first;
// darker means that more tokens chose it. Layers without experts have empty rows.
std::string WithExpertMap(const std::string& curves,
                          const std::vector<offline::ActivationCounter>& layers);

}  // namespace thermocline::tools
