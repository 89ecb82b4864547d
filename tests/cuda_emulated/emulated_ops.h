// The op table of the emulated kernels.
#pragma once

#include "kernels/device_ops.h"

namespace thermocline::kernels {

namespace emulated {
const DeviceOps& Ops();  // kernels/cuda/ops.cu
}

inline const DeviceOps& EmulatedOps() { return emulated::Ops(); }

}  // namespace thermocline::kernels
