// What decoding computed and read in the feed-forward networks, for --json.
#pragma once

#include <span>

#include "engine/api/ffn_stats.h"
#include "engine/base/json.h"

namespace thermocline::tools {

// Sums over layers and decoded tokens: rows, bytes, and operations. A multiply-add of two numbers
// counts as one operation, so does a word of 32 signs that are compared. Null if no token was
// decoded alone: tokens that share a step share its rows, and are not counted.
Json WorkJson(std::span<const FfnLayerStats> layers);

}  // namespace thermocline::tools
