// Places in matrices that lie row by row.
#pragma once

#include <cstddef>

namespace thermocline::nn {

// Where row `row` of a matrix with `width` columns begins.
inline std::ptrdiff_t Offset(int row, int width) {
  return static_cast<std::ptrdiff_t>(row) * width;
}

}  // namespace thermocline::nn
