// Sizes and places of arrays whose dimensions are ints.
#pragma once

#include <cstddef>

namespace thermocline::base {

// Elements of a matrix. Requires: rows, cols >= 0.
constexpr std::size_t Area(int rows, int cols) { return static_cast<std::size_t>(rows) * cols; }

// Elements of a container: tokens, neurons and layers are counted in ints.
constexpr int IntSize(const auto& container) { return static_cast<int>(container.size()); }

// `value` rounded up to a multiple of `unit`. Requires: unit > 0.
constexpr std::size_t RoundUp(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace thermocline::base
