// sign_predict.h for processors that count bits in 512-bit vectors (AVX512_VPOPCNTDQ).
#pragma once

#include "kernels/sign_predict.h"

namespace thermocline::kernels {

// Requires: HasVectorPopcount().
void SignScoresPopcnt(const SignScoresParams& p);

}  // namespace thermocline::kernels
