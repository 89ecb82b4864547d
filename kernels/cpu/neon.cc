// The op table for NEON with FEAT_DotProd. This file alone is compiled for that ISA.
#include "kernels/op_table.h"
//
#include "kernels/cpu/simd_neon.h"
//
#include "kernels/cpu/ops.inl.h"

namespace thermocline::kernels {

extern const OpTable kNeonOps;
const OpTable kNeonOps = kIsaOps;

}  // namespace thermocline::kernels
