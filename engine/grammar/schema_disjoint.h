// Decides about schemas without making their automata: whether a value satisfies one, and whether
// two share no value.
#pragma once

#include <string>
#include <vector>

#include "engine/grammar/schema_merge.h"

namespace thermocline::grammar {

// The types a schema takes; without `type` those that its keywords speak of, else all.
std::vector<std::string> TypesOf(const MergedSchema& schema);

// True if a value of an enumeration satisfies all other keywords of `schema`. Unimplemented: a
// composite value under keywords for its parts.
Result<bool> Satisfies(const Json& value, const MergedSchema& schema, Budget& budget);

// True only if no value satisfies both.
bool AreDisjoint(const MergedSchema& a, const MergedSchema& b);

}  // namespace thermocline::grammar
