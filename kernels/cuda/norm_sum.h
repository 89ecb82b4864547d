// Sums of floats in the order of kernels/elementwise.h: 16 chains (column mod 16), added pairwise.
#pragma once

#include "kernels/cuda/launch.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

// The chains' values, chain i in lane i of the first 16 lanes, added; in all lanes of the warp.
__device__ __forceinline__ float AddChains(float chain) {
#pragma unroll
  for (int width = 8; width > 0; width /= 2) chain += __shfl_down_sync(~0U, chain, width);
  return __shfl_sync(~0U, chain, 0);
}

// The values that a block sums, a tile at a time: `fill(tile, begin, count, of)` writes of(value)
// of values begin .. begin + count - 1. This one reads them with `value(i)`.
template <typename Value>
struct TileOf {
  const Value& value;

  template <typename Of>
  __device__ __forceinline__ void operator()(float* tile, int begin, int count,
                                             const Of& of) const {
    for (int i = threadIdx.x; i < count; i += blockDim.x) tile[i] = of(value(begin + i));
  }
};

// The sum of body(chain, of(value)) over n values, for a whole block; `tile` and `result` are
// shared. Values pass through the tile because 16 threads alone would wait for each of their loads.
inline constexpr int kNormTile = 4096;
template <typename Fill, typename Of, typename Body>
__device__ __forceinline__ float ChainedSum(int n, float* tile, float* result, const Fill& fill,
                                            const Of& of, const Body& body) {
  const int thread = threadIdx.x;
  float chain = 0;
  for (int begin = 0; begin < n; begin += kNormTile) {
    const int count = n - begin < kNormTile ? n - begin : kNormTile;
    fill(tile, begin, count, of);
    __syncthreads();
    if (thread < 16) {
#pragma unroll 16
      for (int i = thread; i < count; i += 16) chain = body(chain, tile[i]);
    }
    __syncthreads();
  }
  if (thread < 32) {
    const float sum = AddChains(chain);
    if (thread == 0) *result = sum;
  }
  __syncthreads();
  const float sum = *result;
  __syncthreads();
  return sum;
}

// mean and 1 / deviation of n values; mean is 0 for RMS norms.
struct Moments {
  float mean, scale;
};
template <typename Fill>
__device__ __forceinline__ Moments NormMoments(int n, bool rms, float eps, float* tile,
                                               float* result, const Fill& fill) {
  const auto size = static_cast<float>(n);
  float mean = 0;
  if (!rms) {
    const auto same = [](float x) { return x; };
    const auto add = [](float chain, float x) { return __fadd_rn(chain, x); };
    mean = __fdiv_rn(ChainedSum(n, tile, result, fill, same, add), size);
  }
  const auto centred = [&](float x) { return rms ? x : __fsub_rn(x, mean); };
  const auto square = [](float chain, float x) { return __fmaf_rn(x, x, chain); };
  const float squares = ChainedSum(n, tile, result, fill, centred, square);
  return {mean, __fdiv_rn(1.0F, __fsqrt_rn(__fadd_rn(__fdiv_rn(squares, size), eps)))};
}

// One value normed.
__device__ __forceinline__ float Normed(float x, const Moments& m, bool rms, float weight,
                                        const float* bias, int i) {
  if (rms) return __fmul_rn(__fmul_rn(x, m.scale), weight);
  const float out = __fmul_rn(__fmul_rn(__fsub_rn(x, m.mean), m.scale), weight);
  return bias != nullptr ? __fadd_rn(out, bias[i]) : out;
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
