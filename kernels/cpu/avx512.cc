// The op table for AVX-512 with VNNI. This file alone is compiled for that ISA.
#include "kernels/cpu/sign_popcnt.h"
#include "kernels/cpu/x86_features.h"
#include "kernels/op_table.h"
//
#include "kernels/cpu/simd_avx512.h"
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

namespace {

void SignScoresBest(const SignScoresParams& p) {
  static const bool kCounts = HasVectorPopcount();
  kCounts ? SignScoresPopcnt(p) : SignScores(p);
}

}  // namespace

extern const OpTable kAvx512Ops;
const OpTable kAvx512Ops = {kIsaName,  Gemm,           GemmRows<Gemm>, SumRows,   FinishSum,
                            SumInputs, SignScoresBest, Quantize,       Attention, RmsNorm,
                            LayerNorm, Rope,           Gated,          Add,       SoftCap,
                            ToHalf,    SoftmaxExp,     DotPeakOf};

}  // namespace thermocline::kernels
