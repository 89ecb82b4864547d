// Everything that may happen in a decoding, each outcome with its exact probability.
//
// Every random variable, one for each (position, stream), is uniform on [0, 1), and a decoding sees
// it through Pick (by the inverse of the cumulative distribution, tokens ascending) and Accept (by
// a threshold). So what it does depends on which intervals its variables lie in. One run follows
// one box of intervals; where a question could be answered in several ways within the box, the box
// is cut, the run goes on with one piece, and the others wait for runs of their own. The boxes of
// all runs fill the unit cube, and the volumes of those that gave a sequence add up to its
// probability.
//
// The questions' order does not matter, so that the threads of a decoder may ask as they come, as
// long as the sequence depends on the answers alone.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "engine/sampling/distribution.h"

namespace thermocline::spec {

using Tokens = std::vector<int>;
// Sequence to probability.
using Outcomes = std::map<Tokens, long double>;

// Runs `decode` until its outcomes are complete: with everything it draws drawn from the Chance
// given, and nothing asking that any more when it returns. The same answers must give the same
// tokens.
Outcomes Enumerate(const std::function<Tokens(const sampling::Chance&)>& decode);

// The largest difference between two probabilities of a sequence, with the sequence in words.
std::pair<long double, Tokens> Difference(const Outcomes& a, const Outcomes& b);
// Sum of the probabilities: 1, or the enumeration is wrong.
long double Total(const Outcomes& outcomes);

}  // namespace thermocline::spec
