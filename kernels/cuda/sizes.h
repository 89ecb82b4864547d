// Sizes of a type as constants of the kernels: kDTypeTraits itself is an array of the host.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/types.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

template <DType type>
struct SizesOf {
  static constexpr int kBlockSize = Traits(type).block_size;
  static constexpr int kBlockBytes = Traits(type).block_bytes;
  static constexpr int kPanelBlockBytes = kPanelRows * kBlockBytes;
  static constexpr bool kQuantized = Traits(type).quantized;

  // As RowBytes and PanelBytes of kernels/types.h.
  static __device__ __forceinline__ std::size_t RowBytes(int cols) {
    const std::size_t blocks = cols / kBlockSize;
    return blocks * kBlockBytes;
  }
  static __device__ __forceinline__ std::size_t PanelBytes(int cols) {
    return kPanelRows * RowBytes(cols);
  }
};

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
