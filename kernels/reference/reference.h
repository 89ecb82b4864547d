// The scalar oracle: every op written directly from its formula, for tests and for unknown
// processors.
#pragma once

#include "kernels/op_table.h"

namespace thermocline::kernels::reference {

void Gemm(const GemmParams& p);
void GemmRows(const GemmRowsParams& p);
void SumRows(const SumRowsParams& p);
void FinishSum(const FinishSumParams& p);
void SumInputs(const SumInputsParams& p);
// Up to 16 rows of a RowMatrix, from anywhere, as a panel; the other lanes stay as they are.
void GatherPanel(DType type, const std::uint8_t* const* rows, int num_rows, int cols,
                 std::uint8_t* panel);
void SignScores(const SignScoresParams& p);
void Quantize(const QuantizeParams& p);
void Attention(const AttentionParams& p);
void RmsNorm(const RmsNormParams& p);
void LayerNorm(const LayerNormParams& p);
void Rope(const RopeParams& p);
void Gated(const GatedParams& p);
void ShortConv(const ShortConvParams& p);
void Recurrence(const RecurrenceParams& p);
void Add(float* x, const float* y, int n);
void ToHalf(const float* x, int n, std::uint16_t* out);
float SoftmaxExp(float* x, int n, float max);
std::int64_t DotPeakOf(int rounds);

}  // namespace thermocline::kernels::reference
