// Rejects grammars that have so many ways to parse a text that computing masks would soon take too
// long: at compile time, instead of in the middle of an answer.
#pragma once

#include "engine/base/status.h"
#include "engine/grammar/automaton.h"

namespace thermocline::grammar {

// Parses a text in which every byte is the one that leaves the most ways to continue, and measures
// how the work per byte grows. InvalidArgument if it grows faster than the length of the text. It
// is a probe, not a proof: cases that it misses are stopped by Parser::kWorkMax.
Status CheckAmbiguity(const Automaton& automaton);

}  // namespace thermocline::grammar
