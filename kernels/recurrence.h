// The parts of recurrent mixers between their products: a causal convolution over the last tokens,
// and a state that every token decays, changes by one outer product and reads.
//
// Lanes are columns, which are independent of each other; sums over rows run in two chains (row mod
// 2) that are added at the end. A token's arithmetic is the same whether it comes alone or behind
// others, so the bits do not depend on how a text is cut into steps.
#pragma once

#include <cstddef>

namespace thermocline::kernels {

inline constexpr int kConvTapsMax = 8;
// Columns of a state that are worked on together; a state's columns are a multiple of it.
inline constexpr int kStateColumns = 16;

// out[c] = bias[c] + sum over t of weight[t][c] * rows[t][c], t from the oldest token to this one.
struct ShortConvParams {
  const float* rows[kConvTapsMax] = {};  // [taps] of [n], the oldest first
  const float* weight = nullptr;         // [taps, n]
  const float* bias = nullptr;           // [n] or null
  int taps = 0;
  int n = 0;
  float* out = nullptr;  // [n], none of `rows`
};

// For each token, with the state S [rows, cols] of one head:
//   delta rule:  e = beta (v - decay S^T k);   otherwise  e = v
//   S = decay S + k e^T;                       out = S^T q
// Source: Yang et al. 2024 (gated delta networks); Dao and Gu 2024 (Mamba-2: k is B, q is C, v is
// dt x).
struct RecurrenceParams {
  float* state = nullptr;  // [rows, state_stride], of which `cols` columns
  int rows = 0, cols = 0;  // cols: a multiple of kStateColumns
  std::ptrdiff_t state_stride = 0;
  int tokens = 0;
  // Strides between the vectors of two tokens, in floats.
  std::ptrdiff_t key_stride = 0, value_stride = 0, gate_stride = 0, out_stride = 0;
  const float* k = nullptr;      // [tokens, rows]
  const float* q = nullptr;      // [tokens, rows]
  const float* v = nullptr;      // [tokens, cols]
  const float* decay = nullptr;  // [tokens]
  const float* beta = nullptr;   // [tokens]; null: no delta rule
  float* out = nullptr;          // [tokens, cols]; null: the state alone is wanted
};

}  // namespace thermocline::kernels
