// Sizes and places of arrays whose dimensions are ints.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace thermocline::base {

// Elements of a matrix. Requires: rows, cols >= 0.
constexpr std::size_t Area(int rows, int cols) { return static_cast<std::size_t>(rows) * cols; }

// Elements of a container: tokens, neurons and layers are counted in ints.
constexpr int IntSize(const auto& container) { return static_cast<int>(container.size()); }

// The place of the first of the largest elements. Requires: there is one.
constexpr int IndexOfLargest(const auto& values) {
  return static_cast<int>(std::max_element(values.begin(), values.end()) - values.begin());
}

// The place of an enumerator in a table: its value.
template <typename Enum>
requires std::is_enum_v<Enum>
constexpr std::size_t Index(Enum value) { return static_cast<std::size_t>(value); }

// `value` rounded up to a multiple of `unit`. Requires: unit > 0.
constexpr std::size_t RoundUp(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace thermocline::base
