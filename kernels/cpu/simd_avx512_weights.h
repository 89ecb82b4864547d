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

// Rows whose softmax is computed side by side: a row alone is a chain of two reductions.
constexpr int kSoftmaxRows = 4;

// Combines lanes i and i + 8, then 4, 2 and 1 apart. Row r's result is in lanes 4r to 4r + 3.
template <typename Op>
inline F32x16 ReduceRows(const F32x16 (&v)[kSoftmaxRows], const Op& op) {
  const auto halves = [&](F32x16 a, F32x16 b) {
    return op(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  };
  const F32x16 ab = halves(v[0], v[1]), cd = halves(v[2], v[3]);
  const F32x16 of4 = op(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
  const F32x16 of2 = op(of4, _mm512_shuffle_ps(of4, of4, 0x4E));
  return op(of2, _mm512_shuffle_ps(of2, of2, 0xB1));
}
inline F32x16 MaxOfRows(const F32x16 (&v)[kSoftmaxRows]) { return ReduceRows(v, MaxF); }
inline F32x16 SumsOfRows(const F32x16 (&v)[kSoftmaxRows]) { return ReduceRows(v, AddF); }
// A row's result in all lanes.
[[gnu::always_inline]] inline F32x16 RowOf(F32x16 rows, int row) {
  switch (row) {
    case 0:
      return _mm512_shuffle_f32x4(rows, rows, 0x00);
    case 1:
      return _mm512_shuffle_f32x4(rows, rows, 0x55);
    case 2:
      return _mm512_shuffle_f32x4(rows, rows, 0xAA);
    default:
      return _mm512_shuffle_f32x4(rows, rows, 0xFF);
  }
}
inline void StoreRows(float* out, F32x16 rows) {
  const __m512i first = _mm512_castsi128_si512(_mm_set_epi32(12, 8, 4, 0));
  _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, rows)));
}

// Rounds to the nearest integer. Values are in [0, 255].
inline void StoreLevels(std::uint8_t* out, const F32x16 (&v)[4]) {
  const __m512i low = _mm512_packus_epi32(RoundI(v[0]), RoundI(v[1]));
  const __m512i high = _mm512_packus_epi32(RoundI(v[2]), RoundI(v[3]));
  const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  _mm512_storeu_si512(out, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
}

constexpr int kValuePanels = 4, kValueRows = 6;  // of a tile: 24 sums
constexpr int kScorePanels = 4, kScoreRows = 3;  // of a tile: 12 sums, as integers and as floats

}  // namespace
}  // namespace thermocline::kernels
