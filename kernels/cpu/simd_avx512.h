// Sixteen lanes on AVX-512 with VNNI. Included by one translation unit, compiled for that ISA.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/vector128.h"

namespace thermocline::kernels {
namespace {

constexpr const char* kIsaName = "avx512";
constexpr int kFloatTile = 6;  // 4 chains of 6 tokens, a column and a broadcast: 26 registers
constexpr int kPairTile = 6;
constexpr int kWideTile = 6;
constexpr int kPeakChains = 12;
constexpr int kSlabPanels = 2;  // panels that share a broadcast of activations
constexpr int kFewTokens = 8;   // up to this many, groups are decoded into registers
constexpr bool kSlabMagnitudes = false;

using F32x16 = __m512;
using I32x16 = __m512i;
using U8x64 = __m512i;

inline void KeepInRegisters(I32x16& v) { asm("" : "+v"(v)); }

inline __m256i Load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void Store256(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
inline F32x16 ZeroF() { return _mm512_setzero_ps(); }
inline F32x16 Set1(float v) { return _mm512_set1_ps(v); }
inline F32x16 LoadF32(const void* p) { return _mm512_loadu_ps(p); }
inline F32x16 LoadF16(const void* p) { return _mm512_cvtph_ps(Load256(p)); }
// Eight values from each.
inline F32x16 LoadF16Pair(const void* low, const void* high) {
  const __m128i a = Load128(low), b = Load128(high);
  return _mm512_cvtph_ps(_mm256_set_m128i(b, a));
}
inline F32x16 LoadBF16(const void* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(Load256(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline void Store(float* p, F32x16 v) { _mm512_storeu_ps(p, v); }
inline void StoreF16(std::uint16_t* p, F32x16 v) {
  Store256(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fmadd_ps(a, b, c); }
inline F32x16 AddF(F32x16 a, F32x16 b) { return _mm512_add_ps(a, b); }
inline F32x16 SubF(F32x16 a, F32x16 b) { return _mm512_sub_ps(a, b); }
inline F32x16 MulF(F32x16 a, F32x16 b) { return _mm512_mul_ps(a, b); }
inline F32x16 DivF(F32x16 a, F32x16 b) { return _mm512_div_ps(a, b); }
inline F32x16 MaxF(F32x16 a, F32x16 b) { return _mm512_max_ps(a, b); }
inline F32x16 MinF(F32x16 a, F32x16 b) { return _mm512_min_ps(a, b); }
inline F32x16 AbsF(F32x16 v) { return _mm512_abs_ps(v); }
inline F32x16 RoundF(F32x16 v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// v where v >= bound, else 0.
inline F32x16 KeepAtLeast(F32x16 v, F32x16 bound) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, bound, _CMP_GE_OQ), v);
}
// x where v >= bound, else y.
inline F32x16 SelectAtLeast(F32x16 v, F32x16 bound, F32x16 x, F32x16 y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, bound, _CMP_GE_OQ), y, x);
}
// 2^n for integral n in [-126, 127].
inline F32x16 PowerOfTwo(F32x16 n) {
  const __m512i bits =
      _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
  return _mm512_castsi512_ps(bits);
}
inline F32x16 ToF32(I32x16 v) { return _mm512_cvtepi32_ps(v); }

inline I32x16 Set1I(std::int32_t v) { return _mm512_set1_epi32(v); }
inline I32x16 ZeroI() { return _mm512_setzero_si512(); }
inline I32x16 AddI(I32x16 a, I32x16 b) { return _mm512_add_epi32(a, b); }
inline I32x16 LoadI32(const void* p) { return _mm512_loadu_si512(p); }
inline I32x16 AndI(I32x16 v, std::int32_t mask) {
  return _mm512_and_si512(v, _mm512_set1_epi32(mask));
}
// Zeros come in from above.
inline I32x16 ShiftRightI(I32x16 v, int bits) {
  return _mm512_srl_epi32(v, _mm_cvtsi32_si128(bits));
}
inline I32x16 LoadI8(const void* p) { return _mm512_cvtepi8_epi32(Load128(p)); }
// Rounds to nearest even and stores 16 bytes. Requires: values in [-127, 127].
inline void StoreI8(std::int8_t* p, F32x16 v) {
  Store128(p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}
inline I32x16 RoundI(F32x16 v) { return _mm512_cvtps_epi32(v); }
// The same for values in [0, 255].
inline void StoreU8(std::uint8_t* p, F32x16 v) { Store128(p, _mm512_cvtepi32_epi8(RoundI(v))); }

inline U8x64 LoadU8(const void* p) { return _mm512_loadu_si512(p); }
inline U8x64 LowNibbles(U8x64 v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
inline U8x64 HighNibbles(U8x64 v) {
  return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
}
// a | (b & mask), byte by byte.
inline U8x64 OrMasked(U8x64 a, U8x64 b, std::uint8_t mask) {
  return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi8(static_cast<char>(mask)), 0xF8);
}
template <int left>
inline U8x64 Shift(U8x64 v) {
  return left >= 0 ? _mm512_slli_epi16(v, left) : _mm512_srli_epi16(v, -left);
}
// acc[lane] += sum over 4 bytes of weight * x; the 4 bytes of x are the same in every lane.
inline I32x16 Dot4(I32x16 acc, U8x64 weights, const std::int8_t* x) {
  std::int32_t quad;
  __builtin_memcpy(&quad, x, 4);
  return _mm512_dpbusd_epi32(acc, weights, _mm512_set1_epi32(quad));
}
// The offset in products with WideLevels: the caller subtracts it times the sum of x.
inline constexpr std::int32_t kWideOffset = 128;
// Q8_0's q + 128 as Dot4 takes it, less kWideOffset.
inline U8x64 WideLevels(U8x64 weights) { return weights; }

inline I32x16 ShiftLeftI(I32x16 v, int bits) { return _mm512_slli_epi32(v, bits); }
inline void StoreI32(std::int32_t* p, I32x16 v) { _mm512_storeu_si512(p, v); }
inline I32x16 SubI(I32x16 a, I32x16 b) { return _mm512_sub_epi32(a, b); }
inline U8x64 AndBytes(U8x64 a, U8x64 b) { return _mm512_and_si512(a, b); }
// (a ^ b) & mask.
inline U8x64 XorAnd(U8x64 a, U8x64 b, U8x64 mask) {
  return _mm512_ternarylogic_epi32(a, b, mask, 0x28);
}
// Ones in each word.
inline I32x16 CountBits(U8x64 v) {
#if defined(__AVX512VPOPCNTDQ__)
  return _mm512_popcnt_epi32(v);
#else
  const __m512i counts =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
  const __m512i bytes = _mm512_add_epi8(_mm512_shuffle_epi8(counts, LowNibbles(v)),
                                        _mm512_shuffle_epi8(counts, HighNibbles(v)));
  return _mm512_dpbusd_epi32(_mm512_setzero_si512(), bytes, _mm512_set1_epi8(1));
#endif
}
// q[r] = 256 h + l with signed bytes h and l: byte r of `high` and of `low`. Requires: |q| <=
// 32512.
inline void SplitBytes(const I32x16 (&q)[4], I32x16& high, I32x16& low) {
  // Words of two values each, 128 added so that the high byte is h; then both bytes next to each
  // other.
  const __m512i half = _mm512_set1_epi16(128);
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
  const auto pair = [&](__m512i a, __m512i b) {
    const __m512i words = _mm512_mask_blend_epi16(0xAAAAAAAA, a, _mm512_slli_epi32(b, 16));
    return _mm512_shuffle_epi8(_mm512_add_epi16(words, half), order);
  };
  const __m512i first = pair(q[0], q[1]), second = pair(q[2], q[3]);
  const __m512i bytes = _mm512_mask_blend_epi16(0xAAAAAAAA, first, _mm512_slli_epi32(second, 16));
  low = _mm512_xor_si512(bytes, _mm512_set1_epi8(-128));
  high = _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(first, 16), second);
}
// acc[lane] += the sum of its four signed bytes.
inline I32x16 AddBytes(I32x16 acc, I32x16 bytes) {
  return _mm512_dpbusd_epi32(acc, _mm512_set1_epi8(1), bytes);
}
// Four rows of 64 bytes, quarter by quarter: byte 4j + r of a quarter of mixed[i] is byte 4i + j of
// row r's quarter.
inline void InterleaveRows(const U8x64 (&rows)[4], U8x64 (&mixed)[4]) {
  const __m512i ab_low = _mm512_unpacklo_epi8(rows[0], rows[1]),
                ab_high = _mm512_unpackhi_epi8(rows[0], rows[1]),
                cd_low = _mm512_unpacklo_epi8(rows[2], rows[3]),
                cd_high = _mm512_unpackhi_epi8(rows[2], rows[3]);
  mixed[0] = _mm512_unpacklo_epi16(ab_low, cd_low);
  mixed[1] = _mm512_unpackhi_epi16(ab_low, cd_low);
  mixed[2] = _mm512_unpacklo_epi16(ab_high, cd_high);
  mixed[3] = _mm512_unpackhi_epi16(ab_high, cd_high);
}
// p[i] in every word of quarter i.
inline U8x64 SpreadFour(const std::int32_t* p) {
  const __m512i four = _mm512_castsi128_si512(Load128(p));
  return _mm512_permutexvar_epi32(_mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0),
                                  four);
}
// p[i] in every word of half i.
inline U8x64 SpreadTwo(const std::int32_t* p) {
  return _mm512_inserti64x4(_mm512_set1_epi32(p[0]), _mm256_set1_epi32(p[1]), 1);
}
// acc[lane] += sum over 4 bytes of level * coefficient, levels unsigned, coefficients signed.
inline I32x16 DotBytes(I32x16 acc, U8x64 levels, U8x64 coefficients) {
  return _mm512_dpbusd_epi32(acc, levels, coefficients);
}
constexpr bool kSumsInWords = false;
inline I32x16 AddNibbleProducts(I32x16 sum, U8x64 levels, U8x64 coefficients) {
  return DotBytes(sum, levels, coefficients);
}
// Sums over 4 bytes of low * first + high * second. Levels are nibbles.
inline I32x16 DotNibbles(U8x64 low, U8x64 first, U8x64 high, U8x64 second) {
  return DotBytes(DotBytes(ZeroI(), low, first), high, second);
}
// As DotBytes for levels above 127, less kWideOffset times the coefficients.
inline I32x16 DotBytesWide(I32x16 acc, U8x64 levels, U8x64 coefficients) {
  return DotBytes(acc, levels, coefficients);
}

// Four words of each of sixteen rows, from `offset` bytes on, as four quads.
inline void TransposeQuads(const std::uint8_t* const (&rows)[16], std::ptrdiff_t offset,
                           std::uint8_t* quads) {
  const auto load = [&](int row) { return Load128(rows[row] + offset); };
  __m512i v[4];  // quarter q of v[i] is row 4q + i
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_castsi128_si512(load(i));
    v[i] = _mm512_mask_broadcast_i32x4(v[i], 0x00F0, load(4 + i));
    v[i] = _mm512_mask_broadcast_i32x4(v[i], 0x0F00, load(8 + i));
    v[i] = _mm512_mask_broadcast_i32x4(v[i], 0xF000, load(12 + i));
  }
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]),
                c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  _mm512_storeu_si512(quads, _mm512_unpacklo_epi64(a, c));
  _mm512_storeu_si512(quads + 64, _mm512_unpackhi_epi64(a, c));
  _mm512_storeu_si512(quads + 128, _mm512_unpacklo_epi64(b, d));
  _mm512_storeu_si512(quads + 192, _mm512_unpackhi_epi64(b, d));
}

// Quarter i: the sums of the four words of quarter i of a, b, c and d.
inline I32x16 SumQuarters(I32x16 a, I32x16 b, I32x16 c, I32x16 d) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b)),
                cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}
// Quarter j of v[i] and quarter i of v[j] change places.
inline void TransposeQuarters(I32x16 (&v)[4]) {
  const __m512i a = _mm512_shuffle_i32x4(v[0], v[1], 0x44),
                b = _mm512_shuffle_i32x4(v[0], v[1], 0xEE),
                c = _mm512_shuffle_i32x4(v[2], v[3], 0x44),
                d = _mm512_shuffle_i32x4(v[2], v[3], 0xEE);
  v[0] = _mm512_shuffle_i32x4(a, c, 0x88);
  v[1] = _mm512_shuffle_i32x4(a, c, 0xDD);
  v[2] = _mm512_shuffle_i32x4(b, d, 0x88);
  v[3] = _mm512_shuffle_i32x4(b, d, 0xDD);
}

// The six-bit numbers of a block of Q4_K (kernels/types.h): eight scales, then eight minimums, from
// three words. Reads 16 bytes.
inline I32x16 SixBitNumbers(const std::uint8_t* words) {
  std::uint32_t word[3];
  __builtin_memcpy(word, words, 12);
  const std::int32_t last = word[0] >> 30 | (word[1] >> 30) << 2 | (word[2] >> 30) << 4;
  const __m512i all = _mm512_castsi128_si512(Load128(words));
  const __m512i lanes = _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2), all);
  const __m512i shifted = _mm512_srlv_epi32(
      lanes, _mm512_setr_epi32(0, 6, 12, 18, 24, 0, 6, 12, 18, 24, 0, 6, 12, 18, 24, 0));
  return _mm512_mask_set1_epi32(_mm512_and_si512(shifted, _mm512_set1_epi32(63)), 0x8000, last);
}
// The lower eight lanes of both, and the upper eight.
inline I32x16 LowHalves(I32x16 a, I32x16 b) { return _mm512_shuffle_i64x2(a, b, 0x44); }
inline I32x16 HighHalves(I32x16 a, I32x16 b) { return _mm512_shuffle_i64x2(a, b, 0xEE); }

// Lanes added pairwise, halves first: the order of the reference.
inline float SumLanes(F32x16 v) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
inline float MaxLanes(F32x16 v) { return _mm512_reduce_max_ps(v); }
inline std::int32_t SumLanesI(I32x16 v) { return _mm512_reduce_add_epi32(v); }

}  // namespace
}  // namespace thermocline::kernels

#include "kernels/cpu/simd_avx512_levels.h"
#include "kernels/cpu/simd_avx512_weights.h"
