// Rules that begin or end with themselves, as loops.
//
// A rule Y = B | Y G | H Y | Y K Y, where Y may also stand inside of the others, derives the texts
// H* B (G | K H* B)*. The loop reads a text in one way, the rule in as many as there are trees
// above it. So "s ::= c | s s" costs what "s ::= c+" does. Source: elimination of direct left
// recursion (Aho, Lam, Sethi, Ullman 2006, section 4.3).
#pragma once

#include "engine/grammar/budget.h"
#include "engine/grammar/grammar.h"

namespace thermocline::grammar {

// Takes the edges by which a rule enters itself first or last out of the rules' bodies, and powers
// of a rule that two of it contain. Returns whether there were any. Errors as Budget::Check.
Result<bool> LoopEnds(Grammar& grammar, Budget& budget);

}  // namespace thermocline::grammar
