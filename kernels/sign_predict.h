// Sign prediction: an estimate of W x from one or two bits of each weight.
//
// The sign of w * x is the exclusive or of their signs. So the sum of a row's products is estimated
// from the bits of W and a few bits of x by XOR and population counts:
//
// clang-format off
//   score_i = sum_j s_ij m_j (1 + 2 b_ij)
//
//   s_ij   +1 where the signs of w_ij and x_j agree, else -1
//   m_j    1 with one slice; with k > 1 slices |x_j| in multiples of rms(x) kSliceStep[k], rounded, at most 2^k - 1:
//          large inputs count more, for no byte more
//   b_ij   0 with one plane; 1 with two planes where |w_ij| is above its row's mean:
//          large weights count three times, for twice the bytes
// clang-format on
//
// A neuron is predicted active where score_i >= threshold_i. SparseInfer's rule, skip where
// negatives > alpha positives, is one slice, one plane and SignThreshold(alpha).
// Source: SparseInfer (Shin et al. 2024), section 4; slices, planes and row thresholds are ours.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"

namespace thermocline::kernels {

inline constexpr int kSignSlicesMax = 5;
// The steps of slices in units of rms(x). Chosen so that the largest level is 2.7, 3.5, 4.5 and 6.2
// rms.
inline constexpr float kSliceStep[kSignSlicesMax + 1] = {0, 0, 0.9F, 0.5F, 0.3F, 0.2F};

// Columns of a cache line of a plane.
inline constexpr int kSignColumns = 512;
// 64-bit words of a row's plane: whole cache lines.
THERMOCLINE_HOST_DEVICE inline constexpr int SignWords(int cols) {
  return (cols + kSignColumns - 1) / kSignColumns * (kSignColumns / 64);
}

// Bits of a matrix [rows, cols]. Borrows them. Bits beyond `cols` are zero.
struct SignPlanes {
  int rows = 0;
  int cols = 0;
  const std::uint64_t* sign = nullptr;  // [rows, SignWords] 1 = negative
  const std::uint64_t* magnitude =
      nullptr;  // [rows, SignWords] 1 = above the mean; null: one plane
};

// One row's bits. `magnitude` may be null.
void PackSigns(const float* weights, int cols, std::uint64_t* sign, std::uint64_t* magnitude);

// Bits of an input x [cols].
struct SignInput {
  int slices = 0;                        // 1..kSignSlicesMax
  const std::uint64_t* sign = nullptr;   // [SignWords] 1 = negative
  const std::uint64_t* slice = nullptr;  // [slices, SignWords] bit s of m_j
  std::int32_t total = 0;                // sum of m_j
};
THERMOCLINE_HOST_DEVICE inline constexpr int SignInputWords(int cols, int slices) {
  return SignWords(cols) * (1 + slices);
}
// Packs x into `words` [SignInputWords].
SignInput PackSignInput(const float* x, int cols, int slices, std::uint64_t* words);

struct SignScoresParams {
  SignPlanes planes;
  SignInput input;
  int row_begin = 0;
  int row_end = 0;
  std::int32_t* scores = nullptr;  // [row_end - row_begin]
};

// The least score of a neuron that SparseInfer keeps: negatives <= alpha positives, in whole
// thousandths of alpha. Requires: alpha_thousandths >= 0.
std::int32_t SignThreshold(int alpha_thousandths, int cols);

}  // namespace thermocline::kernels
