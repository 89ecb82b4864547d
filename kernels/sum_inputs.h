// Sums over the rows of an input-major matrix (row j is multiplied by input j), by several threads:
// each adds up a part of the rows in integers, and the parts are added and scaled last.
//
// With a_jb the scale of row j's block b of 32 outputs, limit_b at least every |x_j a_jb|, and s =
// limit_b / 32512: q = round(x_j a_jb / s) has 16 bits, and y = s * sum of q * (level - offset).
// Differs from SumRows (rows.h) of quantised types in that limits are given, so that a row is read
// once, and rows have no runs: the sums do not depend on how rows are split among threads.
#pragma once

#include <cstdint>

#include "kernels/rows.h"

namespace thermocline::kernels {

// Types with such a sum: Q4_0 and Q8_0.
inline bool CanSumInputs(DType type) { return type == DType::kQ4_0 || type == DType::kQ8_0; }

struct SumInputsParams {
  RowMatrix weights;         // [inputs, outputs], of a type that CanSumInputs
  const int* ids = nullptr;  // [count] ascending
  const float* x = nullptr;  // [count]
  int count = 0;
  const float* limits = nullptr;    // [outputs / 32]
  std::int32_t* high = nullptr;     // [outputs] set: sums with the coefficients' high bytes
  std::int32_t* low = nullptr;      // [outputs] and with their low bytes
  std::uint8_t* scratch = nullptr;  // SumInputsScratchBytes(outputs) of this thread
};

std::size_t SumInputsScratchBytes(int outputs);

}  // namespace thermocline::kernels
