// The tables that this folder's files fill in, and all of them together.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/device_ops.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

DeviceRuntime RuntimeTable();
const DenseOps& DenseTable();
SparseOps SparseTable();

const DeviceOps& Ops();

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
