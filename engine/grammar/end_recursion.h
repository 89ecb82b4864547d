// Rules that begin or end with themselves, as loops.
//
// Of a rule Y = B | Y G | H Y | Y K Y, where Y may also stand inside of the others, every text is
// one of H* B ((G | K H* B))*: what the rule derives is the same, but a text is read in one way
// instead of as many as there are trees above it. So "s ::= c | s s" costs what "s ::= c+" does.
// Source: elimination of direct left recursion (Aho, Lam, Sethi, Ullman 2006, section 4.3).
#pragma once

#include "engine/grammar/budget.h"
#include "engine/grammar/grammar.h"

namespace thermocline::grammar {

// Takes the edges by which a rule enters itself first or last out of the rules' bodies, and powers
// of a rule that two of it contain. Returns whether there were any. Errors as Budget::Check.
Result<bool> LoopEnds(Grammar& grammar, Budget& budget);

}  // namespace thermocline::grammar
