// Converts rules that begin or end with themselves into loops.
//
// A rule Y = B | Y G | H Y | Y K Y, where Y may also occur inside the other parts, derives the
// texts H* B (G | K H* B)*. The loop parses a text in one way, the rule in as many ways as there
// are parse trees. So "s ::= c | s s" costs the same as "s ::= c+". Source: elimination of direct
// left recursion (Aho, Lam, Sethi, Ullman 2006, section 4.3).
#pragma once

#include "engine/grammar/budget.h"
#include "engine/grammar/grammar.h"

namespace thermocline::grammar {

// Removes the edges by which a rule enters itself first or last from the rules' bodies, and powers
// of a rule if it also derives its square. Returns true if there were any. Errors as Budget::Check.
Result<bool> LoopEnds(Grammar& grammar, Budget& budget);

}  // namespace thermocline::grammar
