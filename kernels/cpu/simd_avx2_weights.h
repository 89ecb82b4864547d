// Operations of attention on integers: a power of two, and the products of a row's unsigned
// weights of four positions. Included by simd_avx2.h.
#pragma once

#include "kernels/cpu/softmax_row.h"

namespace thermocline::kernels {
namespace {

// x * 2^n, where `shifted` is n + kRoundShift: n is the low bits of it. Requires: a result that is
// a normal number.
inline __m256 AddExponentHalf(__m256 x, __m256 shifted) {
  const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), n));
}
inline F32x16 AddExponent(F32x16 x, F32x16 shifted) {
  return {AddExponentHalf(x.a, shifted.a), AddExponentHalf(x.b, shifted.b)};
}

// DotWeights: acc[lane] += sum over 4 bytes of weight * value. Without AVX-VNNI they are words,
// because two products of bytes do not fit one: positions 0 and 2, then 1 and 3.
#if THERMOCLINE_VNNI_256
using WeightQuad = __m256i;
using ValueQuad = U8x64;
inline WeightQuad BroadcastWeights(const std::uint8_t* weights) {
  return BroadcastQuad(reinterpret_cast<const std::int8_t*>(weights));
}
inline ValueQuad LoadValues(const std::uint8_t* values) { return LoadU8(values); }
inline I32x16 DotWeights(I32x16 acc, WeightQuad weights, const ValueQuad& values) {
  return {AddQuads(acc.a, weights, values.a), AddQuads(acc.b, weights, values.b)};
}
constexpr int kValuePanels = 1, kValueRows = 6;
constexpr int kScorePanels = 1, kScoreRows = 3;
#else
struct WeightQuad {
  __m256i even, odd;
};
struct ValueQuad {
  I32x16 even, odd;
};
inline WeightQuad BroadcastWeights(const std::uint8_t* weights) {
  const __m256i quad = BroadcastQuad(reinterpret_cast<const std::int8_t*>(weights));
  return {_mm256_and_si256(quad, _mm256_set1_epi16(255)), _mm256_srli_epi16(quad, 8)};
}
inline ValueQuad LoadValues(const std::uint8_t* values) {
  const U8x64 v = LoadU8(values);
  const auto even = [](__m256i x) { return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8); };
  return {{even(v.a), even(v.b)}, {_mm256_srai_epi16(v.a, 8), _mm256_srai_epi16(v.b, 8)}};
}
inline I32x16 DotWeights(I32x16 acc, const WeightQuad& weights, const ValueQuad& values) {
  const auto add = [&](__m256i sum, __m256i even, __m256i odd) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(weights.even, even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(weights.odd, odd));
  };
  return {add(acc.a, values.even.a, values.odd.a), add(acc.b, values.even.b, values.odd.b)};
}
constexpr int kValuePanels = 1, kValueRows = 4;
constexpr int kScorePanels = 0, kScoreRows = 0;  // scores are a product of matrices (gemm.inl.h)
#endif

}  // namespace
}  // namespace thermocline::kernels
