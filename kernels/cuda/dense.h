// The dense ops (kernels/device_dense.h), one file each.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/device_dense.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

DeviceError Gemm(const DeviceGemmParams& p, Stream stream);
DeviceError Quantize(const DeviceQuantizeParams& p, Stream stream);
DeviceError Norm(const DeviceNormParams& p, Stream stream);
DeviceError Add(const DeviceAddParams& p, Stream stream);
DeviceError Gated(const DeviceGatedParams& p, Stream stream);
DeviceError Rotate(const DeviceRotateParams& p, Stream stream);
DeviceError Attention(const DeviceAttentionParams& p, Stream stream);

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
