// Sixteen lanes as two AVX2 vectors, with or without AVX-VNNI's byte dot product. Included by one
// translation unit for each, compiled for that ISA.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/vector128.h"

namespace thermocline::kernels {
namespace {

#if defined(__AVXVNNI__) || defined(__AVX512VNNI__)
#define THERMOCLINE_VNNI_256 1
constexpr const char* kIsaName = "avxvnni";
#else
#define THERMOCLINE_VNNI_256 0
constexpr const char* kIsaName = "avx2";
#endif
constexpr int kFloatTile = 1;   // four chains take 8 of 16 registers
constexpr int kPairTile = 3;    // two chains take 12
constexpr int kWideTile = 6;    // 12 sums, two halves of a column and a broadcast: 15 registers
constexpr int kPeakChains = 6;  // of two vectors each
constexpr int kSlabPanels = 1;
constexpr int kFewTokens = 8;  // up to this many, groups are decoded into registers
constexpr bool kSlabMagnitudes = THERMOCLINE_VNNI_256 == 0;  // Q8_0's weights without their signs

struct F32x16 {
  __m256 a, b;
};
struct I32x16 {
  __m256i a, b;
};
using U8x64 = I32x16;

inline void KeepInRegisters(I32x16& v) { asm("" : "+x"(v.a), "+x"(v.b)); }

inline __m256i Load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void Store256(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
inline F32x16 ZeroF() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32x16 Set1(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
inline F32x16 LoadF32(const void* p) {
  const float* f = static_cast<const float*>(p);
  return {_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
}
inline F32x16 LoadF16(const void* p) {
  const auto* halves = static_cast<const std::uint16_t*>(p);
  return {_mm256_cvtph_ps(Load128(halves)), _mm256_cvtph_ps(Load128(halves + 8))};
}
// Eight values from each.
inline F32x16 LoadF16Pair(const void* low, const void* high) {
  return {_mm256_cvtph_ps(Load128(low)), _mm256_cvtph_ps(Load128(high))};
}
inline __m256 WidenBF16(__m128i v) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
inline F32x16 LoadBF16(const void* p) {
  const auto* halves = static_cast<const std::uint16_t*>(p);
  return {WidenBF16(Load128(halves)), WidenBF16(Load128(halves + 8))};
}
inline void Store(float* p, F32x16 v) {
  _mm256_storeu_ps(p, v.a);
  _mm256_storeu_ps(p + 8, v.b);
}
inline void StoreF16(std::uint16_t* p, F32x16 v) {
  Store128(p, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
  Store128(p + 8, _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
}
inline F32x16 Fma(F32x16 x, F32x16 y, F32x16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline F32x16 AddF(F32x16 x, F32x16 y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
inline F32x16 SubF(F32x16 x, F32x16 y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
inline F32x16 MulF(F32x16 x, F32x16 y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
inline F32x16 DivF(F32x16 x, F32x16 y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
inline F32x16 MaxF(F32x16 x, F32x16 y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
inline F32x16 MinF(F32x16 x, F32x16 y) {
  return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
inline F32x16 AbsF(F32x16 v) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, v.a), _mm256_andnot_ps(sign, v.b)};
}
inline F32x16 RoundF(F32x16 v) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(v.a, kMode), _mm256_round_ps(v.b, kMode)};
}
// v where v >= bound, else 0.
inline F32x16 KeepAtLeast(F32x16 v, F32x16 bound) {
  return {_mm256_and_ps(_mm256_cmp_ps(v.a, bound.a, _CMP_GE_OQ), v.a),
          _mm256_and_ps(_mm256_cmp_ps(v.b, bound.b, _CMP_GE_OQ), v.b)};
}
inline __m256 PowerOfTwoHalf(__m256 n) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
// x where v >= bound, else y.
inline F32x16 SelectAtLeast(F32x16 v, F32x16 bound, F32x16 x, F32x16 y) {
  return {_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(v.a, bound.a, _CMP_GE_OQ)),
          _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(v.b, bound.b, _CMP_GE_OQ))};
}
// 2^n for integral n in [-126, 127].
inline F32x16 PowerOfTwo(F32x16 n) { return {PowerOfTwoHalf(n.a), PowerOfTwoHalf(n.b)}; }
inline F32x16 ToF32(I32x16 v) { return {_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)}; }

inline I32x16 Set1I(std::int32_t v) { return {_mm256_set1_epi32(v), _mm256_set1_epi32(v)}; }
inline I32x16 ZeroI() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline I32x16 AddI(I32x16 x, I32x16 y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
inline I32x16 LoadI32(const void* p) {
  const __m256i* v = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
}
inline I32x16 AndI(I32x16 v, std::int32_t mask) {
  const __m256i m = _mm256_set1_epi32(mask);
  return {_mm256_and_si256(v.a, m), _mm256_and_si256(v.b, m)};
}
// Zeros come in from above.
inline I32x16 ShiftRightI(I32x16 v, int bits) {
  const __m128i count = _mm_cvtsi32_si128(bits);
  return {_mm256_srl_epi32(v.a, count), _mm256_srl_epi32(v.b, count)};
}
inline I32x16 LoadI8(const void* p) {
  const __m128i v = Load128(p);
  return {_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))};
}
inline I32x16 RoundI(F32x16 v) { return {_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b)}; }
// Rounds to nearest even and stores 16 bytes. Requires: values in [-127, 127].
inline void StoreI8(std::int8_t* p, F32x16 v) {
  const I32x16 i = RoundI(v);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(i.a, i.b), 0xD8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  Store128(p, bytes);
}

// The same for values in [0, 255].
inline void StoreU8(std::uint8_t* p, F32x16 v) {
  const I32x16 i = RoundI(v);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(i.a, i.b), 0xD8);
  Store128(p, _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

inline U8x64 LoadU8(const void* p) {
  const __m256i* v = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
}
inline U8x64 LowNibbles(U8x64 v) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(v.a, mask), _mm256_and_si256(v.b, mask)};
}
inline U8x64 HighNibbles(U8x64 v) {
  return LowNibbles({_mm256_srli_epi16(v.a, 4), _mm256_srli_epi16(v.b, 4)});
}
template <int left>
inline __m256i ShiftAndMask(__m256i v, char mask) {
  const __m256i moved = left >= 0 ? _mm256_slli_epi16(v, left) : _mm256_srli_epi16(v, -left);
  return _mm256_and_si256(moved, _mm256_set1_epi8(mask));
}

inline __m256i BroadcastQuad(const std::int8_t* x) {
  std::int32_t quad;
  __builtin_memcpy(&quad, x, 4);
  return _mm256_set1_epi32(quad);
}
#if THERMOCLINE_VNNI_256
inline __m256i AddQuads(__m256i acc, __m256i weights, __m256i x) {
#if defined(__AVXVNNI__)
  return _mm256_dpbusd_avx_epi32(acc, weights, x);
#else  // the same instruction as AVX-512 encodes it: a test runs it where AVX-VNNI is missing
  return _mm256_dpbusd_epi32(acc, weights, x);
#endif
}
#else
inline __m256i AddQuads(__m256i acc, __m256i weights, __m256i x) {
  const __m256i pairs = _mm256_maddubs_epi16(weights, x);
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#endif
#if THERMOCLINE_VNNI_256
// acc[lane] += sum over 4 bytes of weight * x; the 4 bytes of x are the same in every lane.
inline I32x16 Dot4(I32x16 acc, U8x64 weights, const std::int8_t* x) {
  const __m256i quad = BroadcastQuad(x);
  return {AddQuads(acc.a, weights.a, quad), AddQuads(acc.b, weights.b, quad)};
}
// The offset in products with WideLevels: the caller subtracts it times the sum of x.
inline constexpr std::int32_t kWideOffset = 128;
// Q8_0's q + 128 as Dot4 takes it, less kWideOffset.
inline U8x64 WideLevels(U8x64 weights) { return weights; }
#else
inline constexpr std::int32_t kWideOffset = 0;  // DotBytesWide and magnitudes need none
#endif

inline I32x16 ShiftLeftI(I32x16 v, int bits) {
  return {_mm256_slli_epi32(v.a, bits), _mm256_slli_epi32(v.b, bits)};
}
inline void StoreI32(std::int32_t* p, I32x16 v) {
  Store256(p, v.a);
  Store256(p + 8, v.b);
}
inline I32x16 SubI(I32x16 x, I32x16 y) {
  return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
inline U8x64 XorBytes(U8x64 x, U8x64 y) {
  return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
}
inline U8x64 AndBytes(U8x64 x, U8x64 y) {
  return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
inline __m256i CountNibbles(__m256i nibbles) {
  const __m256i counts =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
  return _mm256_shuffle_epi8(counts, nibbles);
}
// (a ^ b) & mask.
inline U8x64 XorAnd(U8x64 a, U8x64 b, U8x64 mask) { return AndBytes(XorBytes(a, b), mask); }
// Ones in each word.
inline I32x16 CountBits(U8x64 v) {
  const U8x64 low = LowNibbles(v), high = HighNibbles(v);
  const __m256i one = _mm256_set1_epi8(1), zero = _mm256_setzero_si256();
  return {AddQuads(zero, _mm256_add_epi8(CountNibbles(low.a), CountNibbles(high.a)), one),
          AddQuads(zero, _mm256_add_epi8(CountNibbles(low.b), CountNibbles(high.b)), one)};
}
// acc[lane] += sum over 4 bytes of level * coefficient, levels unsigned, coefficients signed.
// Requires: levels <= 127.
inline I32x16 DotBytes(I32x16 acc, U8x64 levels, U8x64 coefficients) {
  return {AddQuads(acc.a, levels.a, coefficients.a), AddQuads(acc.b, levels.b, coefficients.b)};
}
// sum + products of nibbles and bytes; without AVX-VNNI sums are words, to be widened by
// WidenPairs.
constexpr bool kSumsInWords = THERMOCLINE_VNNI_256 == 0;
inline I32x16 AddNibbleProducts(I32x16 sum, U8x64 levels, U8x64 coefficients) {
#if THERMOCLINE_VNNI_256
  return DotBytes(sum, levels, coefficients);
#else
  return {_mm256_add_epi16(sum.a, _mm256_maddubs_epi16(levels.a, coefficients.a)),
          _mm256_add_epi16(sum.b, _mm256_maddubs_epi16(levels.b, coefficients.b))};
#endif
}
#if !THERMOCLINE_VNNI_256
inline I32x16 WidenPairs(I32x16 words) {
  const __m256i one = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(words.a, one), _mm256_madd_epi16(words.b, one)};
}
#endif
// Sums over 4 bytes of low * first + high * second. Levels are nibbles.
inline I32x16 DotNibbles(U8x64 low, U8x64 first, U8x64 high, U8x64 second) {
#if THERMOCLINE_VNNI_256
  return DotBytes(DotBytes(ZeroI(), low, first), high, second);
#else  // four products of 15 and 127 fit 16 bits
  const auto half = [](__m256i l, __m256i x, __m256i h, __m256i y) {
    const __m256i words = _mm256_add_epi16(_mm256_maddubs_epi16(l, x), _mm256_maddubs_epi16(h, y));
    return _mm256_madd_epi16(words, _mm256_set1_epi16(1));
  };
  return {half(low.a, first.a, high.a, second.a), half(low.b, first.b, high.b, second.b)};
#endif
}
// As DotBytes for levels above 127, less kWideOffset times the coefficients.
#if THERMOCLINE_VNNI_256
inline I32x16 DotBytesWide(I32x16 acc, U8x64 levels, U8x64 coefficients) {
  return DotBytes(acc, levels, coefficients);
}
#else
// Multiplies 16-bit words: a coefficient may be -128, which cannot be negated in a byte to take the
// sign of a level.
inline __m256i AddQuadsWide(__m256i acc, __m256i levels, __m256i coefficients) {
  const __m256i q = _mm256_xor_si256(levels, _mm256_set1_epi8(-128));
  const __m256i even = _mm256_madd_epi16(_mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8),
                                         _mm256_srai_epi16(_mm256_slli_epi16(coefficients, 8), 8));
  const __m256i odd =
      _mm256_madd_epi16(_mm256_srai_epi16(q, 8), _mm256_srai_epi16(coefficients, 8));
  return _mm256_add_epi32(acc, _mm256_add_epi32(even, odd));
}
inline I32x16 DotBytesWide(I32x16 acc, U8x64 levels, U8x64 coefficients) {
  return {AddQuadsWide(acc.a, levels.a, coefficients.a),
          AddQuadsWide(acc.b, levels.b, coefficients.b)};
}
#endif

inline float SumHalf(__m256 half) {
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
inline void TransposeQuads(const std::uint8_t* const (&rows)[16], std::ptrdiff_t offset,
                           std::uint8_t* quads) {
  TransposeQuadsBy4(rows, offset, quads);
}

// Quarter i: the sums of the four words of quarter i of a, b, c and d.
inline I32x16 SumQuarters(I32x16 a, I32x16 b, I32x16 c, I32x16 d) {
  return {_mm256_hadd_epi32(_mm256_hadd_epi32(a.a, b.a), _mm256_hadd_epi32(c.a, d.a)),
          _mm256_hadd_epi32(_mm256_hadd_epi32(a.b, b.b), _mm256_hadd_epi32(c.b, d.b))};
}
// Quarter j of v[i] and quarter i of v[j] change places.
inline void TransposeQuarters(I32x16 (&v)[4]) {
  const auto low = [](__m256i x, __m256i y) { return _mm256_permute2x128_si256(x, y, 0x20); };
  const auto high = [](__m256i x, __m256i y) { return _mm256_permute2x128_si256(x, y, 0x31); };
  const I32x16 first = {low(v[0].a, v[1].a), low(v[2].a, v[3].a)},
               second = {high(v[0].a, v[1].a), high(v[2].a, v[3].a)},
               third = {low(v[0].b, v[1].b), low(v[2].b, v[3].b)};
  v[3] = {high(v[0].b, v[1].b), high(v[2].b, v[3].b)};
  v[0] = first;
  v[1] = second;
  v[2] = third;
}

// The six-bit numbers of a block of Q4_K (kernels/types.h): eight scales, then eight minimums, from
// three words. Reads 16 bytes.
inline I32x16 SixBitNumbers(const std::uint8_t* words) {
  std::uint32_t word[3];
  __builtin_memcpy(word, words, 12);
  const std::int32_t last = word[0] >> 30 | (word[1] >> 30) << 2 | (word[2] >> 30) << 4;
  const __m256i all = _mm256_castsi128_si256(Load128(words));
  const auto unpack = [&](__m256i which, __m256i shifts) {
    return _mm256_and_si256(_mm256_srlv_epi32(_mm256_permutevar8x32_epi32(all, which), shifts),
                            _mm256_set1_epi32(63));
  };
  const __m256i low = unpack(_mm256_setr_epi32(0, 0, 0, 0, 0, 1, 1, 1),
                             _mm256_setr_epi32(0, 6, 12, 18, 24, 0, 6, 12)),
                high = unpack(_mm256_setr_epi32(1, 1, 2, 2, 2, 2, 2, 2),
                              _mm256_setr_epi32(18, 24, 0, 6, 12, 18, 24, 0));
  return {low, _mm256_blend_epi32(high, _mm256_set1_epi32(last), 0x80)};
}
// The lower eight lanes of both, and the upper eight.
inline I32x16 LowHalves(I32x16 x, I32x16 y) { return {x.a, y.a}; }
inline I32x16 HighHalves(I32x16 x, I32x16 y) { return {x.b, y.b}; }

// Lanes added pairwise, halves first: the order of the reference.
inline float SumLanes(F32x16 v) { return SumHalf(_mm256_add_ps(v.a, v.b)); }
inline float MaxLanes(F32x16 v) {
  const __m256 half = _mm256_max_ps(v.a, v.b);
  const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
inline std::int32_t SumLanesI(I32x16 v) {
  alignas(32) std::int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi32(v.a, v.b));
  std::int32_t sum = 0;
  for (int i = 0; i < 8; ++i) sum += lanes[i];
  return sum;
}

}  // namespace
}  // namespace thermocline::kernels

#include "kernels/cpu/simd_avx2_levels.h"
#include "kernels/cpu/simd_avx2_sums.h"
#include "kernels/cpu/simd_avx2_weights.h"
