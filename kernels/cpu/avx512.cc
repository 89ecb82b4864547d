// The op table for AVX-512 with VNNI. This file alone is compiled for that ISA.
#include "kernels/op_table.h"
//
#include "kernels/cpu/simd_avx512.h"
//
#include "kernels/cpu/elementwise.inl.h"
#include "kernels/cpu/gemm.inl.h"
//
#include "kernels/cpu/attention.inl.h"

namespace thermocline::kernels {

extern const OpTable kAvx512Ops;
const OpTable kAvx512Ops = {kIsaName, Gemm,  Quantize, Attention, RmsNorm,   LayerNorm,
                            Rope,     Gated, Add,      ToHalf,    SoftmaxExp};

}  // namespace thermocline::kernels
