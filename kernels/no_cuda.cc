// A build without CUDA has no CUDA kernels.
#include "kernels/device_ops.h"

namespace thermocline::kernels {

const DeviceOps* CudaOps() { return nullptr; }

}  // namespace thermocline::kernels
