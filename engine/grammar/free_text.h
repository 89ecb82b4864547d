// Free text, limited only by strings that end it.
#pragma once

#include <string>
#include <vector>

#include "engine/grammar/budget.h"
#include "engine/grammar/dfa.h"

namespace thermocline::grammar {

// All texts of bytes that contain none of `stops`; with `at_start`, that begin with none of them.
// An incomplete stop is part of the text. Errors as Budget::Check; InvalidArgument: an empty stop.
// Source: Aho and Corasick 1975.
Result<Dfa> TextWithout(const std::vector<std::string>& stops, bool at_start, Budget& budget);

}  // namespace thermocline::grammar
