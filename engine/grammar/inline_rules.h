// Inlining of rules in place of the edges that enter them.
#pragma once

#include "engine/grammar/budget.h"
#include "engine/grammar/grammar.h"

namespace thermocline::grammar {

// Inlines small rules and rules used once, and drops rules that the root does not reach. The root
// becomes rule 0. Recursive rules stay. Errors as Budget::Check.
Result<Grammar> Inlined(const Grammar& grammar, Budget& budget);

}  // namespace thermocline::grammar
