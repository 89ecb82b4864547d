#include "kernels/cuda/dense.h"
#include "kernels/cuda/tables.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

const DenseOps& DenseTable() {
  static constexpr DenseOps kTable = {Gemm, Quantize, Norm, Add, Gated, Rotate, Attention};
  return kTable;
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
