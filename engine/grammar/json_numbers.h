// JSON numbers within bounds, as states.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/grammar/budget.h"
#include "engine/grammar/decimal.h"
#include "engine/grammar/dfa.h"

namespace thermocline::grammar {

// Maximum digits before and after the point, unless a bound needs more, so that numbers end.
// Programs write shorter ones: 64-bit integers have 20 digits, and doubles up to 17 significant
// digits after some zeros.
inline constexpr int kWholeDigits = 40, kFractionDigits = 40;

struct NumberBound {
  Decimal value = {};
  bool strict = false;  // the value itself is excluded
};

struct NumberBounds {
  std::optional<NumberBound> min = {}, max = {};
  std::int64_t multiple_of = 0;  // 0 = any
};

// Adds the numbers within `bounds` between two states. InvalidArgument: no number is within the
// bounds; Unimplemented: the multiple is too large; or as Budget::Check. Numbers may have an
// exponent if only their sign is bounded.
Status AddInteger(const NumberBounds& bounds, int from, Nfa& nfa, int to, Budget& budget);
Status AddNumber(const NumberBounds& bounds, int from, Nfa& nfa, int to, Budget& budget);

}  // namespace thermocline::grammar
