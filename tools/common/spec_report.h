// The figures of speculative decoding for scripts.
#pragma once

#include "engine/api/speculation.h"
#include "engine/base/json.h"

namespace thermocline::tools {

// Null if none was asked for; else SpecStats' members by name. "accepted_at", "branch_hits" and
// "branch_misses" are lists by position and by accepted length.
Json SpecJson(const SpecStats& spec);

// [n] numbers as JSON.
template <typename Numbers>
Json::Array NumbersJson(const Numbers& numbers) {
  return Json::Array(numbers.begin(), numbers.end());
}

}  // namespace thermocline::tools
