// The ops a transformer needs, as a table of functions: one table per backend.
//
// The engine holds a table and never an #ifdef. All functions are pure but for their outputs,
// thread-safe, and allocate nothing.
#pragma once

#include "kernels/attention.h"
#include "kernels/dot_peak.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/quantize.h"
#include "kernels/recurrence.h"
#include "kernels/rows.h"
#include "kernels/shared_sum.h"
#include "kernels/sign_predict.h"
#include "kernels/sum_inputs.h"
#include "kernels/types.h"

namespace thermocline::kernels {

struct OpTable {
  const char* name;  // "reference", "avx2", "avxvnni", "avx512", "amx", "neon", "i8mm"
  void (*gemm)(const GemmParams&);
  void (*gemm_rows)(const GemmRowsParams&);
  void (*sum_rows)(const SumRowsParams&);
  void (*finish_sum)(const FinishSumParams&);
  void (*sum_inputs)(const SumInputsParams&);
  void (*sign_scores)(const SignScoresParams&);
  void (*quantize)(const QuantizeParams&);
  void (*attention)(const AttentionParams&);
  void (*rms_norm)(const RmsNormParams&);
  void (*layer_norm)(const LayerNormParams&);
  void (*rope)(const RopeParams&);
  void (*gated)(const GatedParams&);
  void (*short_conv)(const ShortConvParams&);
  void (*recurrence)(const RecurrenceParams&);
  void (*add)(float* x, const float* y, int n);                // x += y
  void (*soft_cap)(float* x, int n, float cap);                // x = cap tanh(x / cap)
  void (*to_half)(const float* x, int n, std::uint16_t* out);  // f32 to f16, nearest even
  // exp(x[i] - max) in place; returns the sum, in 16 chains (i mod 16) added pairwise.
  float (*softmax_exp)(float* x, int n, float max);
  DotPeak* dot_peak;
};

const OpTable& ReferenceOps();

// All tables that this build has and this processor can run, fastest first; the last is the
// reference.
// Source: CPUID or the kernel's HWCAP, queried at run time.
struct OpTables {
  const OpTable* tables[8];
  int count;
};
const OpTables& CpuTables();

// The fastest table this processor can run, or the one called `forced`; nullptr if that name is
// unknown or the processor lacks it.
const OpTable* CpuOps(const char* forced = nullptr);

}  // namespace thermocline::kernels
