// The declarations that the files of the product share.
#pragma once

#include "kernels/cuda/panel_group.h"
#include "kernels/device_dense.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

// The target of results: out = ((product + bias) + out, if accumulated).
struct GemmOut {
  float* out;
  const float* bias;
  int stride;
  int rows;
  bool accumulate;

  __device__ __forceinline__ void Store(int token, int row, float value) const {
    if (row >= rows) return;
    float* to = out + StartOf(token, stride) + row;
    if (bias != nullptr) value += bias[row];
    *to = accumulate ? *to + value : value;
  }
};

struct GemmArgs {
  const std::uint8_t* weights;
  std::size_t panel_bytes;
  Q8Tokens x;
  const float* floats;  // [T, cols], float types
  GemmOut out;
};

// GemmFew takes at most kTokenTile tokens; GemmMany takes any number; GemmFloat is for float types.
DeviceError GemmFew(DType type, const GemmArgs& args, Stream stream);
DeviceError GemmMany(DType type, const GemmArgs& args, Stream stream);
DeviceError GemmFloat(DType type, const GemmArgs& args, Stream stream);

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
