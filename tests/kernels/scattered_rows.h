// Rows at arbitrary addresses, as those of bundles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/op_table.h"

namespace thermocline::kernels {

// Rows [count, row bytes] in reverse order with gaps, and the address of each.
struct Scattered {
  static constexpr std::size_t kAhead = 6;  // row 0 of a bundle follows other data
  std::vector<std::uint8_t> bytes;
  std::vector<const std::uint8_t*> where;

  Scattered(const std::vector<std::uint8_t>& rows, int count) {
    const std::size_t row = rows.size() / static_cast<std::size_t>(count), stride = row + 34;
    bytes.resize(stride * static_cast<std::size_t>(count), 0xAA);
    for (int i = 0; i < count; ++i) {
      std::uint8_t* at = bytes.data() + static_cast<std::size_t>(count - 1 - i) * stride;
      std::copy_n(rows.data() + static_cast<std::size_t>(i) * row, row, at + kAhead);
      where.push_back(at);
    }
  }
  RowMatrix Matrix(DType type, int cols) const {
    return {.type = type,
            .rows = static_cast<int>(where.size()),
            .cols = cols,
            .where = where.data(),
            .ahead = kAhead};
  }
};

}  // namespace thermocline::kernels
