// JSON's numbers within bounds, as states.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/grammar/budget.h"
#include "engine/grammar/dfa.h"

namespace thermocline::grammar {

// Digits before the point and behind it, at most: numbers have an end. What a double holds exactly.
inline constexpr int kNumberDigits = 15;
inline constexpr std::int64_t kIntegerMax = 999'999'999'999'999;

struct NumberBound {
  double value = 0;
  bool strict = false;  // the value itself is outside
};

struct NumberBounds {
  std::optional<NumberBound> min = {}, max = {};
  std::int64_t multiple_of = 0;  // 0 = any
};

// Adds the numbers within `bounds` between two states. InvalidArgument: there is none;
// Unimplemented: a multiple that is too large; or as Budget::Check.
Status AddInteger(const NumberBounds& bounds, int from, Nfa& nfa, int to, Budget& budget);
Status AddNumber(const NumberBounds& bounds, int from, Nfa& nfa, int to, Budget& budget);

}  // namespace thermocline::grammar
