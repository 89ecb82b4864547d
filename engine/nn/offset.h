// Offsets in row-major matrices.
#pragma once

#include <cstddef>

namespace thermocline::nn {

// The offset of row `row` in a matrix with `width` columns.
inline std::ptrdiff_t Offset(int row, int width) {
  return static_cast<std::ptrdiff_t>(row) * width;
}

}  // namespace thermocline::nn
