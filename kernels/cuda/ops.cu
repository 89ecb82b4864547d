#include "kernels/cuda/tables.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

const DeviceOps& Ops() {
  static const DeviceOps table = {RuntimeTable(), DenseTable(), SparseTable()};
  return table;
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
