#include "kernels/cpu/sign_popcnt.h"
//
#include "kernels/cpu/simd_avx512.h"
//
#include "kernels/cpu/sign_predict.inl.h"

namespace thermocline::kernels {

void SignScoresPopcnt(const SignScoresParams& p) { SignScores(p); }

}  // namespace thermocline::kernels
