// Shares of counts, as metrics and reports state them.
#pragma once

#include <concepts>

namespace thermocline::base {

template <typename T>
concept Number = std::integral<T> || std::floating_point<T>;

// part / whole; 0 if `whole` is 0.
double Ratio(Number auto part, Number auto whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace thermocline::base
