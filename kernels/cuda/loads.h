// Loads through the read-only cache, half floats, and the six-bit numbers of Q4_K and Q5_K.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

__device__ __forceinline__ unsigned LoadWord(const std::uint8_t* p) {
  return __ldg(reinterpret_cast<const unsigned*>(p));
}
__device__ __forceinline__ unsigned LoadHalfBits(const std::uint8_t* p) {
  return __ldg(reinterpret_cast<const unsigned short*>(p));
}
__device__ __forceinline__ float FromHalfBits(unsigned bits) {
  return ptx::HalfToFloat(static_cast<std::uint16_t>(bits));
}
// Six-bit number k of a block's three words (kernels/types.h).
__device__ __forceinline__ int SixBits(const unsigned* words, int k) {
  if (k == 15)
    return static_cast<int>(words[0] >> 30 | (words[1] >> 30) << 2 | (words[2] >> 30) << 4);
  const unsigned word = k < 5 ? words[0] : k < 10 ? words[1] : words[2];
  return static_cast<int>((word >> (6 * (k % 5))) & 63U);
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
