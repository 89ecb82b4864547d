// The work and bytes of the feed-forward networks in decoding, for --json.
#pragma once

#include <span>

#include "engine/api/ffn_stats.h"
#include "engine/base/json.h"

namespace thermocline::tools {

// Sums over layers and decoded tokens: rows, bytes, and operations. A multiply-add counts as one
// operation, and so does a comparison of a word of 32 signs. Null if no token was decoded alone:
// tokens that share a step share its rows, and are not counted.
Json WorkJson(std::span<const FfnLayerStats> layers);

}  // namespace thermocline::tools
