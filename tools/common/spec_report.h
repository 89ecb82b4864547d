// The statistics of speculative decoding as JSON.
#pragma once

#include "engine/api/speculation.h"
#include "engine/base/json.h"

namespace thermocline::tools {

// Null without speculation; else SpecStats' members by name. "accepted_at", "branch_hits" and
// "branch_misses" are lists by position and by accepted length.
Json SpecJson(const SpecStats& spec);

// [n] numbers as JSON.
template <typename Numbers>
Json::Array NumbersJson(const Numbers& numbers) {
  return Json::Array(numbers.begin(), numbers.end());
}

}  // namespace thermocline::tools
