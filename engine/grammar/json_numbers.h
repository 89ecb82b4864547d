// JSON's numbers within bounds, as states.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/grammar/budget.h"
#include "engine/grammar/decimal.h"
#include "engine/grammar/dfa.h"

namespace thermocline::grammar {

// Digits before the point and behind it, at most, where no bound needs more: numbers have an end.
// What programs write is shorter: 64-bit integers have 20 digits, and doubles up to 17 significant
// ones behind some zeros.
inline constexpr int kWholeDigits = 40, kFractionDigits = 40;

struct NumberBound {
  Decimal value = {};
  bool strict = false;  // the value itself is outside
};

struct NumberBounds {
  std::optional<NumberBound> min = {}, max = {};
  std::int64_t multiple_of = 0;  // 0 = any
};

// Adds the numbers within `bounds` between two states. InvalidArgument: there is none;
// Unimplemented: a multiple that is too large; or as Budget::Check. Numbers may have an exponent
// where their sign alone is bounded.
Status AddInteger(const NumberBounds& bounds, int from, Nfa& nfa, int to, Budget& budget);
Status AddNumber(const NumberBounds& bounds, int from, Nfa& nfa, int to, Budget& budget);

}  // namespace thermocline::grammar
