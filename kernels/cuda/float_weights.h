// Weights of the float types.
#pragma once

#include "kernels/cuda/loads.h"
#include "kernels/cuda/sizes.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

// f16 or bf16.
template <DType type>
__device__ inline float FloatOfBits(std::uint32_t bits) {
  if constexpr (type == DType::kF16) return FromHalfBits(bits);
  return __uint_as_float(bits << 16);
}

template <DType type>
__device__ inline float LoadFloat(const std::uint8_t* row, int c) {
  if constexpr (type == DType::kF32) {
    return reinterpret_cast<const float*>(row)[c];
  } else {
    return FloatOfBits<type>(reinterpret_cast<const std::uint16_t*>(row)[c]);
  }
}

// Columns [c, c + 4) of a row; 0 beyond its end. Rows whose columns are a multiple of four are read
// by vectors. Requires: c a multiple of four.
template <DType type>
__device__ inline void LoadFloats(const std::uint8_t* row, int c, int cols, float out[4]) {
  if (cols % 4 != 0) {
    for (int i = 0; i < 4; ++i) out[i] = c + i < cols ? LoadFloat<type>(row, c + i) : 0;
  } else if constexpr (type == DType::kF32) {
    const float4 four = LoadAt<float4>(row, c / 4);
    out[0] = four.x;
    out[1] = four.y;
    out[2] = four.z;
    out[3] = four.w;
  } else {
    const uint2 four = LoadAt<uint2>(row, c / 4);
    out[0] = FloatOfBits<type>(four.x & 0xFFFFU);
    out[1] = FloatOfBits<type>(four.x >> 16);
    out[2] = FloatOfBits<type>(four.y & 0xFFFFU);
    out[3] = FloatOfBits<type>(four.y >> 16);
  }
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
