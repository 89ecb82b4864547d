// A build with CUDA: the counterpart of no_cuda.cc.
#include "kernels/device_ops.h"

namespace thermocline::kernels {
namespace cuda {
const DeviceOps& Ops();  // kernels/cuda/ops.cu
}

const DeviceOps* CudaOps() { return &cuda::Ops(); }

}  // namespace thermocline::kernels
