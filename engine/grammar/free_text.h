// Text that may be anything but for what ends it.
#pragma once

#include <string>
#include <vector>

#include "engine/grammar/budget.h"
#include "engine/grammar/dfa.h"

namespace thermocline::grammar {

// Every text of bytes that contains none of `stops`; `at_start`: that begins with none of them. A
// begun stop is part of the text. Errors as Budget::Check; InvalidArgument: an empty stop.
// Source: Aho and Corasick 1975.
Result<Dfa> TextWithout(const std::vector<std::string>& stops, bool at_start, Budget& budget);

}  // namespace thermocline::grammar
