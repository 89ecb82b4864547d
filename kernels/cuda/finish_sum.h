// The last step of the down projection: the runs of a column, added in their order.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/device_sparse.h"
#include "kernels/quantize.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

inline constexpr int kParts = FinishSumParams::kPartsMax;

// The limit of both partitions, or of the only one.
__device__ inline float LimitOf(const float* const limits[2], std::ptrdiff_t at) {
  const float first = limits[0][at];
  return limits[1] != nullptr ? fmaxf(first, limits[1][at]) : first;
}

// One column of one token, of quantised types. The numbers of all runs are loaded, even of runs
// without a limit, so that no load waits for another.
__device__ inline float FinishQuantized(const DeviceFinishSumParams& p, int token, int c) {
  const int runs = NumSumRuns(p.neurons), blocks = p.cols / 32;
  float y = 0;
#pragma unroll 4
  for (int run = 0; run < runs; ++run) {
    const std::ptrdiff_t row = StartOf(token, runs) + run;
    const std::ptrdiff_t number = row * blocks + c / 32, at = row * p.cols + c;
    const float limit = LimitOf(p.limits, number);
    int high = 0, low = 0;
#pragma unroll  // so that the pointers stay parameters
    for (int i = 0; i < kParts; ++i) {
      if (i >= p.parts) break;
      high += p.high[i][at];
      low += p.low[i][at];
    }
    const float sum = fmaf(256.0F, static_cast<float>(high), static_cast<float>(low));
    y = limit > kActivationMin ? fmaf(limit * (1.0F / kCoefficientMax), sum, y) : y;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (i < p.parts && p.minimums[i] != nullptr) y += p.minimums[i][number];
    }
  }
  return y;
}

__device__ inline float FinishFloats(const DeviceFinishSumParams& p, int token, int c) {
  const int runs = NumSumRuns(p.neurons);
  float y = 0;
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    if (i >= p.parts) break;
    for (int run = 0; run < runs; ++run) y += p.sums[i][(StartOf(token, runs) + run) * p.cols + c];
  }
  return y;
}

// Writes column `c` of `token`, the bias added.
template <bool floats>
__device__ inline void FinishColumn(const DeviceFinishSumParams& p, int token, int c) {
  float y = floats ? FinishFloats(p, token, c) : FinishQuantized(p, token, c);
  if (p.bias != nullptr) y += p.bias[c];
  float* out = p.out + StartOf(token, p.out_stride) + c;
  *out = p.accumulate ? *out + y : y;
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
