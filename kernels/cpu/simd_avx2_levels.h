// Levels and scales out of packed bits, on AVX2.
//
// Included by simd_avx2.h.
#pragma once

namespace thermocline::kernels {
namespace {

inline I32x16 LoadU16(const void* p) {
  const __m128i* v = static_cast<const __m128i*>(p);
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(v)), _mm256_cvtepu16_epi32(_mm_loadu_si128(v + 1))};
}
// 2^(e - 128) of sixteen bytes e.
inline F32x16 LoadE8M0(const void* p) {
  const __m128i v = Load128(p);
  const auto power = [](__m256i e) {  // 2^(e - 127) is e in the exponent; 2^-127 has none
    const __m256i bits = _mm256_max_epi32(_mm256_slli_epi32(e, 23), _mm256_set1_epi32(0x00400000));
    return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0.5F));
  };
  return {power(_mm256_cvtepu8_epi32(v)), power(_mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)))};
}
// The low nibbles of eight bytes, then their high ones.
inline I32x16 LoadNibbles(const void* p) {
  const __m128i v = _mm_loadl_epi64(static_cast<const __m128i*>(p));
  const __m128i both =
      _mm_and_si128(_mm_unpacklo_epi64(v, _mm_srli_epi16(v, 4)), _mm_set1_epi8(15));
  return {_mm256_cvtepu8_epi32(both), _mm256_cvtepu8_epi32(_mm_srli_si128(both, 8))};
}
// Bits 2j and 2j+1 of every byte of `bits` as bits 4 and 5 over `low`.
template <int j>
inline U8x64 WithTwoBits(U8x64 low, U8x64 bits) {
  return {_mm256_or_si256(low.a, ShiftAndMask<4 - 2 * j>(bits.a, 0x30)),
          _mm256_or_si256(low.b, ShiftAndMask<4 - 2 * j>(bits.b, 0x30))};
}
// Bit i of every byte of `bits` as bit `to` over `low`.
template <int i, int to>
inline U8x64 WithBit(U8x64 low, U8x64 bits) {
  return {_mm256_or_si256(low.a, ShiftAndMask<to - i>(bits.a, 1 << to)),
          _mm256_or_si256(low.b, ShiftAndMask<to - i>(bits.b, 1 << to))};
}
// `count` bits of every byte, from bit `first` on.
template <int first, int count>
inline U8x64 Bits(U8x64 v) {
  constexpr std::uint8_t kMask = (1 << count) - 1;
  return {ShiftAndMask<-first>(v.a, kMask), ShiftAndMask<-first>(v.b, kMask)};
}
// table[i] of every byte i. Requires: below 16.
inline U8x64 LookUp(const std::uint8_t (&table)[16], U8x64 indices) {
  const __m256i twice = _mm256_broadcastsi128_si256(Load128(table));
  return {_mm256_shuffle_epi8(twice, indices.a), _mm256_shuffle_epi8(twice, indices.b)};
}
// Numbers below 2^15 as AddTimesSum takes them.
inline I32x16 TwiceInWords(I32x16 v) {
  return {_mm256_or_si256(v.a, _mm256_slli_epi32(v.a, 16)),
          _mm256_or_si256(v.b, _mm256_slli_epi32(v.b, 16))};
}
// acc + number * sum, where `pairs` holds two words that add up to the sum.
inline I32x16 AddTimesSum(I32x16 acc, I32x16 number, std::int32_t pairs) {
  const __m256i both = _mm256_set1_epi32(pairs);
  return {_mm256_add_epi32(acc.a, _mm256_madd_epi16(number.a, both)),
          _mm256_add_epi32(acc.b, _mm256_madd_epi16(number.b, both))};
}

}  // namespace
}  // namespace thermocline::kernels
