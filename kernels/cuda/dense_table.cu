#include "kernels/cuda/dense.h"
#include "kernels/cuda/tables.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

const DenseOps& DenseTable() {
  static constexpr DenseOps kTable = {Gemm,  Quantize, Norm,      Add, Gated,
                                      Embed, Rotate,   Attention, TopK};
  return kTable;
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
