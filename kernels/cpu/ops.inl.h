// Every op for one ISA, and their table. The file of each ISA includes it after its vectors
// (simd_<isa>.h).
#include "kernels/op_table.h"
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
//
#include "kernels/cpu/recurrence.inl.h"

namespace thermocline::kernels {
namespace {

constexpr OpTable kIsaOps = {.name = kIsaName,
                             .gemm = Gemm,
                             .gemm_rows = GemmRows<Gemm>,
                             .sum_rows = SumRows,
                             .finish_sum = FinishSum,
                             .sum_inputs = SumInputs,
                             .sign_scores = SignScores,
                             .quantize = Quantize,
                             .attention = Attention,
                             .rms_norm = RmsNorm,
                             .layer_norm = LayerNorm,
                             .rope = Rope,
                             .gated = Gated,
                             .short_conv = ShortConv,
                             .recurrence = Recurrence,
                             .add = Add,
                             .soft_cap = SoftCap,
                             .to_half = ToHalf,
                             .softmax_exp = SoftmaxExp,
                             .dot_peak = DotPeakOf};

}  // namespace
}  // namespace thermocline::kernels
