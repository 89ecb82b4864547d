// Decides without building automata if a value satisfies a schema, and if two schemas share no
// value.
#pragma once

#include <string>
#include <vector>

#include "engine/grammar/schema_merge.h"

namespace thermocline::grammar {

// The types a schema allows; without `type` those that its keywords apply to, or all.
std::vector<std::string> TypesOf(const MergedSchema& schema);

// True if a value of an enumeration satisfies all other keywords of `schema`. Unimplemented: a
// composite value under keywords for its parts.
Result<bool> Satisfies(const Json& value, const MergedSchema& schema, Budget& budget);

// True only if no value satisfies both.
bool AreDisjoint(const MergedSchema& a, const MergedSchema& b);

}  // namespace thermocline::grammar
