// Operations of attention on integers: a power of two, and the products of a row's unsigned
// weights of four positions. Included by simd_neon.h.
#pragma once

#include "kernels/cpu/softmax_row.h"

namespace thermocline::kernels {
namespace {

// x * 2^n, where `shifted` is n + kRoundShift: n is the low bits of it. Requires: a result that is
// a normal number.
[[gnu::always_inline]] inline F32x16 AddExponent(F32x16 x, F32x16 shifted) {
  return Map<F32x16>([&](int i) __attribute__((always_inline)) {
    const int32x4_t n = vshlq_n_s32(vreinterpretq_s32_f32(shifted.v[i]), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x.v[i]), n));
  });
}

// DotWeights: acc[lane] += sum over 4 bytes of weight * value.
using WeightQuad = uint8x16_t;
using ValueQuad = U8x64;
[[gnu::always_inline]] inline WeightQuad BroadcastWeights(const std::uint8_t* weights) {
  std::uint32_t quad;
  __builtin_memcpy(&quad, weights, 4);
  return vreinterpretq_u8_u32(vdupq_n_u32(quad));
}
[[gnu::always_inline]] inline ValueQuad LoadValues(const std::uint8_t* values) {
  return LoadU8(values);
}
// Without a product of unsigned and signed bytes, weights are 128 and a signed byte.
[[gnu::always_inline]] inline I32x16 DotWeights(I32x16 acc, WeightQuad weights,
                                                const ValueQuad& values) {
  return Map<I32x16>([&](int i) __attribute__((always_inline)) {
    const int8x16_t v = vreinterpretq_s8_u8(values.v[i]);
#if defined(__ARM_FEATURE_MATMUL_INT8)
    return vusdotq_s32(acc.v[i], weights, v);
#else
    const int8x16_t high = vdupq_n_s8(64), rest = vreinterpretq_s8_u8(veorq_u8(weights, vdupq_n_u8(128)));
    return vdotq_s32(vdotq_s32(vdotq_s32(acc.v[i], high, v), high, v), rest, v);
#endif
  });
}
constexpr int kValuePanels = 1, kValueRows = 4;
constexpr int kScorePanels = 0, kScoreRows = 0;  // scores are a product of matrices (gemm.inl.h)

}  // namespace
}  // namespace thermocline::kernels
