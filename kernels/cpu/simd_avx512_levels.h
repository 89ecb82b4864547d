// Levels and scales out of packed bits, on AVX-512.
//
// Included by simd_avx512.h.
#pragma once

namespace thermocline::kernels {
namespace {

inline I32x16 LoadU16(const void* p) { return _mm512_cvtepu16_epi32(Load256(p)); }
// 2^(e - 128) of sixteen bytes e: 2^(e - 127) is e in the exponent, but for 2^-127, which has none.
inline F32x16 LoadE8M0(const void* p) {
  const __m512i e = _mm512_cvtepu8_epi32(Load128(p));
  const __m512i bits = _mm512_max_epi32(_mm512_slli_epi32(e, 23), _mm512_set1_epi32(0x00400000));
  return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0.5F));
}
// The low nibbles of eight bytes, then their high ones.
inline I32x16 LoadNibbles(const void* p) {
  const __m128i v = _mm_loadl_epi64(static_cast<const __m128i*>(p));
  return _mm512_cvtepu8_epi32(
      _mm_and_si128(_mm_unpacklo_epi64(v, _mm_srli_epi16(v, 4)), _mm_set1_epi8(15)));
}
// Bits 2j and 2j+1 of every byte of `bits` as bits 4 and 5 over `low`.
template <int j>
inline U8x64 WithTwoBits(U8x64 low, U8x64 bits) {
  return OrMasked(low, Shift<4 - 2 * j>(bits), 0x30);
}
// Bit i of every byte of `bits` as bit `to` over `low`.
template <int i, int to>
inline U8x64 WithBit(U8x64 low, U8x64 bits) {
  return OrMasked(low, Shift<to - i>(bits), 1 << to);
}
// `count` bits of every byte, from bit `first` on.
template <int first, int count>
inline U8x64 Bits(U8x64 v) {
  return _mm512_and_si512(Shift<-first>(v), _mm512_set1_epi8((1 << count) - 1));
}
// table[i] of every byte i. Requires: below 16.
inline U8x64 LookUp(const std::uint8_t (&table)[16], U8x64 indices) {
  const __m128i once = Load128(table);
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(once), indices);
}
// Numbers below 2^15 as AddTimesSum takes them.
inline I32x16 TwiceInWords(I32x16 v) { return _mm512_or_si512(v, _mm512_slli_epi32(v, 16)); }
// acc + number * sum, where `pairs` holds two words that add up to the sum.
inline I32x16 AddTimesSum(I32x16 acc, I32x16 number, std::int32_t pairs) {
  return _mm512_dpwssd_epi32(acc, number, _mm512_set1_epi32(pairs));
}

}  // namespace
}  // namespace thermocline::kernels
