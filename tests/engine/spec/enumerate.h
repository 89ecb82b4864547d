// Enumerates all outcomes of a decoding, each with its exact probability.
//
// Every random variable, one for each (position, stream), is uniform on [0, 1), and a decoding sees
// it through Pick (by the inverse of the cumulative distribution, tokens ascending) and Accept (by
// a threshold). So its result depends on the intervals in which its variables lie. One run follows
// one box of intervals; if a question has several answers within the box, the box is cut, the run
// continues with one piece, and the others wait for runs of their own. The boxes of all runs fill
// the unit cube, and the volumes of the boxes that gave a sequence add up to its probability.
//
// The order of questions does not matter, so the threads of a decoder may ask in any order, if the
// sequence depends on the answers alone.
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

// Runs `decode` until its outcomes are complete. It must draw everything from the given random
// source, which must not be used after it returns. The same answers must give the same tokens.
Outcomes Enumerate(const std::function<Tokens(const sampling::RandomSource&)>& decode);

// The largest difference between two probabilities of a sequence, with the sequence.
std::pair<long double, Tokens> Difference(const Outcomes& a, const Outcomes& b);
// The sum of the probabilities, which is 1 if the enumeration is right.
long double Total(const Outcomes& outcomes);

}  // namespace thermocline::spec
