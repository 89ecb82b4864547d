// AVX2 functions for weighted sums of quantised rows. They split each integer coefficient into a
// high and a low byte, and interleave the bytes of four rows, so that one instruction multiplies
// the four rows' levels (quantised values) by their coefficients. Included by simd_avx2.h.
#pragma once

namespace thermocline::kernels {
namespace {

// q[r] = 256 h + l with signed bytes h and l: byte r of `high` and of `low`. Requires: |q| <=
// 32512.
inline void SplitBytes(const I32x16 (&q)[4], I32x16& high, I32x16& low) {
  // Words of two values each, 128 added so that the high byte is h; then both bytes next to each
  // other.
  const auto half = [](__m256i a, __m256i b, __m256i c, __m256i d, __m256i& up, __m256i& down) {
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
    const auto pair = [&](__m256i x, __m256i y) {
      const __m256i words = _mm256_blend_epi16(x, _mm256_slli_epi32(y, 16), 0xAA);
      return _mm256_shuffle_epi8(_mm256_add_epi16(words, _mm256_set1_epi16(128)), order);
    };
    const __m256i first = pair(a, b), second = pair(c, d);
    const __m256i bytes = _mm256_blend_epi16(first, _mm256_slli_epi32(second, 16), 0xAA);
    down = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
    up = _mm256_blend_epi16(_mm256_srli_epi32(first, 16), second, 0xAA);
  };
  half(q[0].a, q[1].a, q[2].a, q[3].a, high.a, low.a);
  half(q[0].b, q[1].b, q[2].b, q[3].b, high.b, low.b);
}
// acc[lane] += the sum of its four signed bytes.
inline I32x16 AddBytes(I32x16 acc, I32x16 bytes) {
  const __m256i one = _mm256_set1_epi8(1);
  return {AddQuads(acc.a, one, bytes.a), AddQuads(acc.b, one, bytes.b)};
}
// Four rows of 64 bytes, quarter by quarter: byte 4j + r of a quarter of mixed[i] is byte 4i + j of
// row r's quarter.
inline void InterleaveRows(const U8x64 (&rows)[4], U8x64 (&mixed)[4]) {
  const auto half = [&](__m256i a, __m256i b, __m256i c, __m256i d, __m256i U8x64::*part) {
    const __m256i ab_low = _mm256_unpacklo_epi8(a, b), ab_high = _mm256_unpackhi_epi8(a, b),
                  cd_low = _mm256_unpacklo_epi8(c, d), cd_high = _mm256_unpackhi_epi8(c, d);
    mixed[0].*part = _mm256_unpacklo_epi16(ab_low, cd_low);
    mixed[1].*part = _mm256_unpackhi_epi16(ab_low, cd_low);
    mixed[2].*part = _mm256_unpacklo_epi16(ab_high, cd_high);
    mixed[3].*part = _mm256_unpackhi_epi16(ab_high, cd_high);
  };
  half(rows[0].a, rows[1].a, rows[2].a, rows[3].a, &U8x64::a);
  half(rows[0].b, rows[1].b, rows[2].b, rows[3].b, &U8x64::b);
}
// p[i] in every word of quarter i.
inline U8x64 SpreadFour(const std::int32_t* p) {
  const auto pair = [](std::int32_t low, std::int32_t high) {
    return _mm256_set_epi32(high, high, high, high, low, low, low, low);
  };
  return {pair(p[0], p[1]), pair(p[2], p[3])};
}
// p[i] in every word of half i.
inline U8x64 SpreadTwo(const std::int32_t* p) {
  return {_mm256_set1_epi32(p[0]), _mm256_set1_epi32(p[1])};
}

}  // namespace
}  // namespace thermocline::kernels
