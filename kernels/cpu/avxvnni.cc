// The op table for AVX2 with AVX-VNNI. This file alone is compiled for that ISA.
#include "kernels/op_table.h"
//
#include "kernels/cpu/simd_avx2.h"
//
#include "kernels/cpu/ops.inl.h"

namespace thermocline::kernels {

extern const OpTable kAvxVnniOps;
const OpTable kAvxVnniOps = kIsaOps;

}  // namespace thermocline::kernels
