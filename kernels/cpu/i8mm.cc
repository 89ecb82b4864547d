// The op table for NEON with FEAT_I8MM. This file alone is compiled for that ISA.
#include "kernels/op_table.h"
//
#include "kernels/cpu/simd_neon.h"
//
#include "kernels/cpu/ops.inl.h"

namespace thermocline::kernels {

extern const OpTable kI8mmOps;
const OpTable kI8mmOps = kIsaOps;

}  // namespace thermocline::kernels
