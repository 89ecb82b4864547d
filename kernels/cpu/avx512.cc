// The op table for AVX-512 with VNNI. This file alone is compiled for that ISA.
#include "kernels/cpu/sign_popcnt.h"
#include "kernels/cpu/x86_features.h"
#include "kernels/op_table.h"
//
#include "kernels/cpu/simd_avx512.h"
//
#include "kernels/cpu/ops.inl.h"

namespace thermocline::kernels {

namespace {

void SignScoresBest(const SignScoresParams& p) {
  static const bool kCounts = HasVectorPopcount();
  kCounts ? SignScoresPopcnt(p) : SignScores(p);
}

}  // namespace

extern const OpTable kAvx512Ops;
const OpTable kAvx512Ops = [] {
  OpTable table = kIsaOps;
  table.sign_scores = SignScoresBest;
  return table;
}();

}  // namespace thermocline::kernels
