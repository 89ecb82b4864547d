// Exact decimal numbers of any size, for the bounds of JSON numbers.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/json.h"

namespace thermocline::grammar {

// sign whole.fraction, without leading zeros in `whole` ("0" has one digit) and without zeros at
// the end of `fraction`. Zero is not negative.
struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction = {};

  bool is_whole() const { return fraction.empty(); }
};

// Requires: a number. A double is converted to the shortest decimal that reads back as it.
Decimal DecimalOf(const Json& number);

// Returns a value below 0, 0 or above 0: CompareWhole compares unsigned whole numbers, Compare
// signed decimals.
int CompareWhole(std::string_view a, std::string_view b);
int Compare(const Decimal& a, const Decimal& b);

// The next unsigned whole number, and the one before. OneLess requires a number above 0.
std::string OneMore(std::string whole);
std::string OneLess(std::string whole);

}  // namespace thermocline::grammar
