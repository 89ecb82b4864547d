// Types and scratch memory of sums of rows (kernels/rows.h, sum_inputs.h).
#include "kernels/rows.h"
#include "kernels/sum_inputs.h"

namespace thermocline::kernels {

DType SummableType(DType type, std::int64_t cols) {
  // Q4_0 has every value of a ternary block.
  if (type == DType::kTQ2_0 && cols % Traits(type).block_size != 0) type = DType::kQ4_0;
  if (!CanSumRows(type)) type = DType::kQ8_0;
  return cols % Traits(type).block_size == 0 ? type : DType::kF16;
}

std::size_t SumScratchBytes(int columns) {
  // Coefficients as floats and as two bytes each, for a chunk of rows padded to four and blocks
  // padded to 16; then five numbers for each block, and pointers to the rows of two chunks and to
  // the chosen rows.
  const std::size_t blocks = (columns + 511) / 512 * 16;
  return blocks * (kSumChunk + 4) * (4 + 2) + 5 * blocks * 4 + (kSumChunk + 4) * (3 * 8 + 4) + 128;
}

std::size_t SumInputsScratchBytes(int outputs) {
  constexpr std::size_t kRowsMax = 16;  // rows whose coefficients are held at the same time
  const std::size_t padded = (outputs / 32 + 15) / 16 * 16;
  // Words of coefficients, numbers of a block; sums of all columns by two bytes, whole tiles.
  return 64 + padded * (2 * kRowsMax + 4 * 3) + 8 * (32 * padded + 128);
}

}  // namespace thermocline::kernels
