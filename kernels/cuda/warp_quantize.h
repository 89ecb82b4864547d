// Thirty-two neighbouring values to their Q8 form by one warp: the bits of kernels/quantize.h.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/device_dense.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

__device__ __forceinline__ float WarpMax(float value) {
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) value = fmaxf(value, __shfl_xor_sync(~0U, value, bits));
  return value;
}

// Lane i has x[i] of block `block` of all tokens' blocks, counted from `to`'s first. Returns the
// lane's value as the Q8 form has it.
__device__ __forceinline__ float QuantizeBlock(float x, std::size_t block,
                                               const DeviceActivations& to) {
  const auto lane = threadIdx.x % 32;
  const float max = WarpMax(fabsf(x));
  const float inverse = max > kActivationMin ? __fdiv_rn(127.0F, max) : 0.0F;
  const int q = __float2int_rn(__fmul_rn(x, inverse));
  int sum = q;
#pragma unroll
  for (int bits = 8; bits > 0; bits /= 2) sum += __shfl_xor_sync(~0U, sum, bits);
  const int other = __shfl_xor_sync(~0U, sum, 16);
  const float scale = __fdiv_rn(max, 127.0F);
  to.q[block * 32 + lane] = static_cast<std::int8_t>(q);
  if (lane == 0) {
    to.scale[block] = scale;
    to.sum[block] = sum + other;
    to.half_sum[block] = sum;
    to.scaled_sum[block] = __fmul_rn(scale, static_cast<float>(sum + other));
  }
  return __fmul_rn(scale, static_cast<float>(q));
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
