// Decimal numbers of any size, exactly: the bounds of JSON's numbers.
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

// Requires: a number. A double is taken as the shortest decimal that reads back as it.
Decimal DecimalOf(const Json& number);

// Below 0, 0 or above 0: how whole numbers without sign compare, and decimals with one.
int CompareWhole(std::string_view a, std::string_view b);
int Compare(const Decimal& a, const Decimal& b);

// The next whole number without a sign, and the one before. Requires of OneLess: above 0.
std::string OneMore(std::string whole);
std::string OneLess(std::string whole);

}  // namespace thermocline::grammar
