// The op table for AVX2. This file alone is compiled for that ISA.
#include "kernels/op_table.h"
//
#include "kernels/cpu/simd_avx2.h"
//
#include "kernels/cpu/ops.inl.h"

namespace thermocline::kernels {

extern const OpTable kAvx2Ops;
const OpTable kAvx2Ops = kIsaOps;

}  // namespace thermocline::kernels
