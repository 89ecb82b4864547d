// Operations of attention on integers: a power of two, and the products of a row's unsigned
// weights of four positions. Included by simd_avx512.h.
#pragma once

namespace thermocline::kernels {
namespace {

// x * 2^n, where `shifted` is n + kRoundShift: n is the low bits of it. Requires: a result that is
// a normal number.
inline F32x16 AddExponent(F32x16 x, F32x16 shifted) {
  const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), n));
}

// DotWeights: acc[lane] += sum over 4 bytes of weight * value.
using WeightQuad = __m512i;
inline WeightQuad BroadcastWeights(const std::uint8_t* weights) {
  std::int32_t quad;
  __builtin_memcpy(&quad, weights, 4);
  return _mm512_set1_epi32(quad);
}
using ValueQuad = U8x64;
inline ValueQuad LoadValues(const std::uint8_t* values) { return LoadU8(values); }
inline I32x16 DotWeights(I32x16 acc, WeightQuad weights, ValueQuad values) {
  return _mm512_dpbusd_epi32(acc, weights, values);
}
constexpr int kValuePanels = 4, kValueRows = 6;  // of a tile: 24 sums
constexpr int kScorePanels = 4, kScoreRows = 3;  // of a tile: 12 sums, as integers and as floats

}  // namespace
}  // namespace thermocline::kernels
