// AVX-VNNI's kernels, compiled with AVX-512's encoding of the same instruction.
#include "kernels/cpu/x86_features.h"
#include "kernels/op_table.h"
//
#include "kernels/cpu/simd_avx2.h"
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
#include "tests/kernels/tables.h"

namespace thermocline::kernels {

const OpTable* AvxVnniAsAvx512() {
  static const OpTable table = {"avxvnni as avx512",
                                Gemm,
                                GemmRows<Gemm>,
                                SumRows,
                                FinishSum,
                                SumInputs,
                                SignScores,
                                Quantize,
                                Attention,
                                RmsNorm,
                                LayerNorm,
                                Rope,
                                Gated,
                                Add,
                                SoftCap,
                                ToHalf,
                                SoftmaxExp,
                                DotPeakOf};
  return HasAvx512() ? &table : nullptr;
}

}  // namespace thermocline::kernels
