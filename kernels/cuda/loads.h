// Loads through the read-only cache, half floats, and the six-bit numbers of Q4_K and Q5_K.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

// Element `at` of an array of T at `from`.
template <typename T>
__device__ __forceinline__ T LoadAt(const void* from, int at = 0) {
  return __ldg(static_cast<const T*>(from) + at);
}
__device__ __forceinline__ unsigned LoadWord(const std::uint8_t* p) { return LoadAt<unsigned>(p); }
__device__ __forceinline__ unsigned LoadHalfBits(const std::uint8_t* p) {
  return LoadAt<unsigned short>(p);
}
// `sum` and the products of four signed bytes, which `levels` holds as one word.
__device__ __forceinline__ int Dot4(int levels, int x, int sum) { return __dp4a(levels, x, sum); }
__device__ __forceinline__ float FromHalfBits(unsigned bits) {
  return ptx::HalfToFloat(static_cast<std::uint16_t>(bits));
}
// Six-bit number k of a block's three words (kernels/types.h).
__device__ __forceinline__ int SixBits(const unsigned* words, int k) {
  if (k == 15) return words[0] >> 30 | (words[1] >> 30) << 2 | (words[2] >> 30) << 4;
  const unsigned word = k < 5 ? words[0] : k < 10 ? words[1] : words[2];
  return (word >> (6 * (k % 5))) & 63U;
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
