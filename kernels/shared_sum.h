// One sum over neuron-major down rows (SumRows of rows.h) shared by partitions of the neurons, each
// with rows of its own, so that the bits do not depend on the partition that sums a row.
//
// Quantised types, in three steps: every partition finds its largest |h_k * a_k| for each run of
// rows and block of columns (maxima); with the largest of all partitions as limits each rounds its
// coefficients to 16 bits and adds in integers; FinishSum adds the parts and scales. The sums of
// minimums alone are floats, added by partition.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/rows.h"

namespace thermocline::kernels {

// Runs of kSumChunk neurons (R).
THERMOCLINE_HOST_DEVICE inline constexpr int NumSumRuns(int rows) {
  return (rows + kSumChunk - 1) / kSumChunk;
}

// One partition's part, instead of SumRowsParams::out.
struct SharedSum {
  float* maxima = nullptr;        // [T, R, D / 32] the first step's result; 0 for runs without rows
  const float* limits = nullptr;  // [T, R, D / 32] not null: the second step
  std::int32_t* high = nullptr;   // [T, R, D] its result: sums with the coefficients' high bytes
  std::int32_t* low = nullptr;    // [T, R, D] and with their low bytes
  float* minimums = nullptr;      // [T, R, D / 32] and of the minimums, if the type has them
};

// y of one token, with the bits of SumRows over all partitions' rows if the type has no minimums:
// for each run in order
//   y = fma(limit / 32512, fma(256, sum of high, sum of low), y), y = y + sum of minimums
struct FinishSumParams {
  static constexpr int kPartsMax = 2;
  struct Part {
    const std::int32_t* high = nullptr;  // [R, D]
    const std::int32_t* low = nullptr;
    const float* minimums = nullptr;  // [R, D / 32]; null if the type has none
  };
  int runs = 0, cols = 0;         // R, D
  const float* limits = nullptr;  // [R, D / 32]
  int num_parts = 0;
  Part parts[kPartsMax];
  int col_begin = 0, col_end = 0;  // multiples of 32
  float* out = nullptr;            // [D]; columns [col_begin, col_end) are set
};

}  // namespace thermocline::kernels
