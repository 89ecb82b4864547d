// The op table for NEON with FEAT_DotProd. This file alone is compiled for that ISA.
#include "kernels/op_table.h"
//
#include "kernels/cpu/simd_neon.h"
//
#include "kernels/cpu/elementwise.inl.h"
#include "kernels/cpu/gemm.inl.h"
//
#include "kernels/cpu/dot_peak.inl.h"
//
#include "kernels/cpu/rows.inl.h"
//
#include "kernels/cpu/sum_rows.inl.h"
//
#include "kernels/cpu/sum_inputs.inl.h"
//
#include "kernels/cpu/sign_predict.inl.h"
//
#include "kernels/cpu/attention.inl.h"

namespace thermocline::kernels {

extern const OpTable kNeonOps;
const OpTable kNeonOps = {kIsaName,   Gemm,     GemmRows<Gemm>, SumRows, FinishSum,  SumInputs,
                          SignScores, Quantize, Attention,      RmsNorm, LayerNorm,  Rope,
                          Gated,      Add,      SoftCap,        ToHalf,  SoftmaxExp, DotPeakOf};

}  // namespace thermocline::kernels
