// Matrix times tokens: y[t, r] = sum_c W[r, c] * x[t, c].
//
// Float weights: four interleaved chains over columns (chain i takes c = i mod 4), each a fused
// multiply-add in column order, added as (0 + 1) + (2 + 3).
// Quantised weights: per block of 32 columns an exact integer dot product s, then
// acc = fma(d_w * d_x, s, acc) in column order. K types: sums of scaled dot products over the 8
// activation blocks of a block first, s = fma(s_i * scale, d_x, s), and of minimums, m = fma(min,
// scaled_sum, m); then acc = fma(d, s, acc), acc = fma(-dmin, m, acc). Where scales are of 16
// columns, s_i * scale is the sum of both halves, and m = fma(min_0 sum_0 + min_1 sum_1, d_x, m)
// with the halves' sums of q: exact integers. Every implementation gives the same bits.
#pragma once

#include "kernels/types.h"

namespace thermocline::kernels {

// The fastest value on a Zen 5 where weights come from memory (measured: cpu/gemm.inl.h).
inline constexpr int kPrefetchBytes = 8192;

struct GemmParams {
  PackedMatrix weights;  // [rows, cols]
  // [tokens, cols]; of float types x is read, of others all but x.
  Activations activations;
  int tokens = 0;        // T
  float* out = nullptr;  // [T, rows] f32, rows out_stride apart
  int out_stride = 0;    // floats between two tokens' outputs
  int panel_begin = 0;   // the panels of this call: a worker's share
  int panel_end = 0;
  // For few tokens and quantised weights: weights are prefetched this many bytes ahead; 0 leaves it
  // to the processor. The address may lie behind the matrix, because a prefetch does not read.
  int prefetch_bytes = kPrefetchBytes;
};

}  // namespace thermocline::kernels
