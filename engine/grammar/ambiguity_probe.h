// Refuses grammars that have so many ways to read a text that masks would soon take too long: when
// they are compiled, instead of in the middle of an answer.
#pragma once

#include "engine/base/status.h"
#include "engine/grammar/automaton.h"

namespace thermocline::grammar {

// Reads a text of which every byte is the one that leaves most ways to go on, and looks at how the
// work of a byte grows. InvalidArgument: faster than the text. It is a probe, not a proof: what it
// does not find, Parser::kWorkMax ends.
Status CheckAmbiguity(const Automaton& automaton);

}  // namespace thermocline::grammar
