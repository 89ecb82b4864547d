#include "kernels/cuda/dense.h"
#include "kernels/cuda/tables.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

const DenseOps& DenseTable() {
  static constexpr DenseOps kTable = {.gemm = Gemm,
                                      .quantize = Quantize,
                                      .norm = Norm,
                                      .add = Add,
                                      .gated = Gated,
                                      .rotate = Rotate,
                                      .attention = Attention};
  return kTable;
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
