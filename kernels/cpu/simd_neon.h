// Sixteen lanes as four NEON vectors, with the byte dot product (FEAT_DotProd), and, where the
// compiler may use it, the byte matrix product (FEAT_I8MM). Included by one translation unit each.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/cpu/vector128.h"

namespace thermocline::kernels {
namespace {

#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr const char* kIsaName = "i8mm";
#else
constexpr const char* kIsaName = "neon";
#endif
constexpr int kFloatTile = 1;   // four chains take 16 of 32 registers
constexpr int kPairTile = 3;    // two chains take 24
constexpr int kWideTile = 6;    // 24 sums, four quarters of a column and a broadcast: 29 registers
constexpr int kPeakChains = 6;  // of four vectors each
constexpr int kSlabPanels = 1;
constexpr int kFewTokens = 8;  // up to this many, groups are decoded into registers
constexpr bool kSlabMagnitudes = false;

struct F32x16 {
  float32x4_t v[4];
};
struct I32x16 {
  int32x4_t v[4];
};
struct U8x64 {
  uint8x16_t v[4];
};

[[gnu::always_inline]] inline void KeepInRegisters(U8x64& v) {
  asm("" : "+w"(v.v[0]), "+w"(v.v[1]), "+w"(v.v[2]), "+w"(v.v[3]));
}
[[gnu::always_inline]] inline void KeepInRegisters(I32x16& v) {
  asm("" : "+w"(v.v[0]), "+w"(v.v[1]), "+w"(v.v[2]), "+w"(v.v[3]));
}

// Applies `op` to each quarter.
template <typename Out, typename Op>
[[gnu::always_inline]] inline Out Map(const Op& op) {
  Out out;
  for (int i = 0; i < 4; ++i) out.v[i] = op(i);
  return out;
}

[[gnu::always_inline]] inline F32x16 Set1(float x) {
  return Map<F32x16>([&](int) __attribute__((always_inline)) { return vdupq_n_f32(x); });
}
[[gnu::always_inline]] inline F32x16 ZeroF() { return Set1(0); }
[[gnu::always_inline]] inline F32x16 LoadF32(const void* p) {
  return Map<F32x16>([&](int i) __attribute__((always_inline)) {
    return vld1q_f32(static_cast<const float*>(p) + 4 * i);
  });
}
[[gnu::always_inline]] inline F32x16 LoadF16(const void* p) {
  return Map<F32x16>([&](int i) __attribute__((always_inline)) {
    return vcvt_f32_f16(
        vreinterpret_f16_u16(vld1_u16(static_cast<const std::uint16_t*>(p) + 4 * i)));
  });
}
// Eight values from each.
[[gnu::always_inline]] inline F32x16 LoadF16Pair(const void* low, const void* high) {
  return Map<F32x16>([&](int i) __attribute__((always_inline)) {
    const auto* half = static_cast<const std::uint16_t*>(i < 2 ? low : high);
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(half + i % 2 * 4)));
  });
}
[[gnu::always_inline]] inline F32x16 LoadBF16(const void* p) {
  return Map<F32x16>([&](int i) __attribute__((always_inline)) {
    return vreinterpretq_f32_u32(
        vshll_n_u16(vld1_u16(static_cast<const std::uint16_t*>(p) + 4 * i), 16));
  });
}
[[gnu::always_inline]] inline void Store(float* p, F32x16 x) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, x.v[i]);
}
[[gnu::always_inline]] inline void StoreF16(std::uint16_t* p, F32x16 x) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
}
[[gnu::always_inline]] inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return Map<F32x16>([&](int i) __attribute__((always_inline)) {
    return vfmaq_f32(c.v[i], a.v[i], b.v[i]);
  });
}
[[gnu::always_inline]] inline F32x16 AddF(F32x16 a, F32x16 b) {
  return Map<F32x16>([&](int i)
                         __attribute__((always_inline)) { return vaddq_f32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline F32x16 SubF(F32x16 a, F32x16 b) {
  return Map<F32x16>([&](int i)
                         __attribute__((always_inline)) { return vsubq_f32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline F32x16 MulF(F32x16 a, F32x16 b) {
  return Map<F32x16>([&](int i)
                         __attribute__((always_inline)) { return vmulq_f32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline F32x16 DivF(F32x16 a, F32x16 b) {
  return Map<F32x16>([&](int i)
                         __attribute__((always_inline)) { return vdivq_f32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline F32x16 MaxF(F32x16 a, F32x16 b) {
  return Map<F32x16>([&](int i)
                         __attribute__((always_inline)) { return vmaxq_f32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline F32x16 MinF(F32x16 a, F32x16 b) {
  return Map<F32x16>([&](int i)
                         __attribute__((always_inline)) { return vminq_f32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline F32x16 AbsF(F32x16 x) {
  return Map<F32x16>([&](int i) __attribute__((always_inline)) { return vabsq_f32(x.v[i]); });
}
[[gnu::always_inline]] inline F32x16 RoundF(F32x16 x) {
  return Map<F32x16>([&](int i) __attribute__((always_inline)) { return vrndnq_f32(x.v[i]); });
}
// x where v >= bound, else y.
[[gnu::always_inline]] inline F32x16 SelectAtLeast(F32x16 v, F32x16 bound, F32x16 x, F32x16 y) {
  return Map<F32x16>([&](int i) __attribute__((always_inline)) {
    return vbslq_f32(vcgeq_f32(v.v[i], bound.v[i]), x.v[i], y.v[i]);
  });
}
// v where v >= bound, else 0.
[[gnu::always_inline]] inline F32x16 KeepAtLeast(F32x16 v, F32x16 bound) {
  return SelectAtLeast(v, bound, v, ZeroF());
}
// 2^n for integral n in [-126, 127].
[[gnu::always_inline]] inline F32x16 PowerOfTwo(F32x16 n) {
  return Map<F32x16>([&](int i) __attribute__((always_inline)) {
    const int32x4_t biased = vaddq_s32(vcvtnq_s32_f32(n.v[i]), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
  });
}
[[gnu::always_inline]] inline F32x16 ToF32(I32x16 x) {
  return Map<F32x16>([&](int i) __attribute__((always_inline)) { return vcvtq_f32_s32(x.v[i]); });
}

[[gnu::always_inline]] inline I32x16 Set1I(std::int32_t x) {
  return Map<I32x16>([&](int) __attribute__((always_inline)) { return vdupq_n_s32(x); });
}
[[gnu::always_inline]] inline I32x16 ZeroI() { return Set1I(0); }
[[gnu::always_inline]] inline I32x16 AddI(I32x16 a, I32x16 b) {
  return Map<I32x16>([&](int i)
                         __attribute__((always_inline)) { return vaddq_s32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline I32x16 LoadI32(const void* p) {
  return Map<I32x16>([&](int i) __attribute__((always_inline)) {
    return vld1q_s32(static_cast<const std::int32_t*>(p) + 4 * i);
  });
}
[[gnu::always_inline]] inline I32x16 AndI(I32x16 x, std::int32_t mask) {
  return Map<I32x16>([&](int i) __attribute__((always_inline)) {
    return vandq_s32(x.v[i], vdupq_n_s32(mask));
  });
}
// Zeros come in from above.
[[gnu::always_inline]] inline I32x16 ShiftRightI(I32x16 x, int bits) {
  return Map<I32x16>([&](int i) __attribute__((always_inline)) {
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x.v[i]), vdupq_n_s32(-bits)));
  });
}
[[gnu::always_inline]] inline I32x16 LoadI8(const void* p) {
  const int8x16_t bytes = vld1q_s8(static_cast<const std::int8_t*>(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)),
           vmovl_s16(vget_low_s16(high)), vmovl_s16(vget_high_s16(high))}};
}
[[gnu::always_inline]] inline I32x16 RoundI(F32x16 x) {
  return Map<I32x16>([&](int i) __attribute__((always_inline)) { return vcvtnq_s32_f32(x.v[i]); });
}
// Rounds to nearest even and stores 16 bytes. Requires: values in [-127, 127].
[[gnu::always_inline]] inline void StoreI8(std::int8_t* p, F32x16 x) {
  const I32x16 n = RoundI(x);
  const int16x8_t low = vcombine_s16(vmovn_s32(n.v[0]), vmovn_s32(n.v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(n.v[2]), vmovn_s32(n.v[3]));
  vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

// The same for values in [0, 255].
[[gnu::always_inline]] inline void StoreU8(std::uint8_t* p, F32x16 x) {
  const I32x16 n = RoundI(x);
  const int16x8_t low = vcombine_s16(vmovn_s32(n.v[0]), vmovn_s32(n.v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(n.v[2]), vmovn_s32(n.v[3]));
  vst1q_u8(p, vreinterpretq_u8_s8(vcombine_s8(vmovn_s16(low), vmovn_s16(high))));
}

[[gnu::always_inline]] inline U8x64 LoadU8(const void* p) {
  return Map<U8x64>([&](int i) __attribute__((always_inline)) {
    return vld1q_u8(static_cast<const std::uint8_t*>(p) + 16 * i);
  });
}
[[gnu::always_inline]] inline U8x64 LowNibbles(U8x64 x) {
  return Map<U8x64>([&](int i) __attribute__((always_inline)) {
    return vandq_u8(x.v[i], vdupq_n_u8(15));
  });
}
[[gnu::always_inline]] inline U8x64 HighNibbles(U8x64 x) {
  return Map<U8x64>([&](int i) __attribute__((always_inline)) { return vshrq_n_u8(x.v[i], 4); });
}
// low | (bits shifted left (right if negative) & mask), byte by byte.
[[gnu::always_inline]] inline U8x64 OrShifted(U8x64 low, U8x64 bits, int left, std::uint8_t mask) {
  return Map<U8x64>([&](int i) __attribute__((always_inline)) {
    const uint8x16_t moved = vshlq_u8(bits.v[i], vdupq_n_s8(static_cast<std::int8_t>(left)));
    return vorrq_u8(low.v[i], vandq_u8(moved, vdupq_n_u8(mask)));
  });
}

// acc[lane] += sum over 4 bytes of weight * x; the 4 bytes of x are the same in every lane.
// Requires: weights <= 127.
[[gnu::always_inline]] inline I32x16 Dot4(I32x16 acc, U8x64 weights, const std::int8_t* x) {
  std::int32_t quad;
  __builtin_memcpy(&quad, x, 4);
  const int8x16_t all = vreinterpretq_s8_s32(vdupq_n_s32(quad));
  return Map<I32x16>([&](int i) __attribute__((always_inline)) {
    return vdotq_s32(acc.v[i], vreinterpretq_s8_u8(weights.v[i]), all);
  });
}
// q + 128 as the signed q.
[[gnu::always_inline]] inline U8x64 TakeOffset(U8x64 weights) {
  return Map<U8x64>([&](int i) __attribute__((always_inline)) {
    return veorq_u8(weights.v[i], vdupq_n_u8(128));
  });
}
// Q8_0's q + 128 as Dot4 takes it, less kWideOffset.
[[gnu::always_inline]] inline U8x64 WideLevels(U8x64 weights) { return TakeOffset(weights); }
// The offset in products with WideLevels: the caller subtracts it times the sum of x.
inline constexpr std::int32_t kWideOffset = 0;

[[gnu::always_inline]] inline I32x16 ShiftLeftI(I32x16 x, int bits) {
  return Map<I32x16>([&](int i) __attribute__((always_inline)) {
    return vshlq_s32(x.v[i], vdupq_n_s32(bits));
  });
}
[[gnu::always_inline]] inline void StoreI32(std::int32_t* p, I32x16 x) {
  for (int i = 0; i < 4; ++i) vst1q_s32(p + 4 * i, x.v[i]);
}
[[gnu::always_inline]] inline I32x16 SubI(I32x16 a, I32x16 b) {
  return Map<I32x16>([&](int i)
                         __attribute__((always_inline)) { return vsubq_s32(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline U8x64 XorBytes(U8x64 a, U8x64 b) {
  return Map<U8x64>([&](int i) __attribute__((always_inline)) { return veorq_u8(a.v[i], b.v[i]); });
}
[[gnu::always_inline]] inline U8x64 AndBytes(U8x64 a, U8x64 b) {
  return Map<U8x64>([&](int i) __attribute__((always_inline)) { return vandq_u8(a.v[i], b.v[i]); });
}
// (a ^ b) & mask.
[[gnu::always_inline]] inline U8x64 XorAnd(U8x64 a, U8x64 b, U8x64 mask) {
  return AndBytes(XorBytes(a, b), mask);
}
// Ones in each word.
[[gnu::always_inline]] inline I32x16 CountBits(U8x64 x) {
  return Map<I32x16>([&](int i) __attribute__((always_inline)) {
    return vreinterpretq_s32_u32(vpaddlq_u16(vpaddlq_u8(vcntq_u8(x.v[i]))));
  });
}
// q[r] = 256 h + l with signed bytes h and l: byte r of `high` and of `low`. Requires: |q| <=
// 32512.
[[gnu::always_inline]] inline void SplitBytes(const I32x16 (&q)[4], I32x16& high, I32x16& low) {
  for (int i = 0; i < 4; ++i) {
    int32x4_t up = vdupq_n_s32(0), down = up;
    for (int r = 0; r < 4; ++r) {
      const int32x4_t byte = vdupq_n_s32(255), left = vdupq_n_s32(8 * r);
      const int32x4_t h = vshrq_n_s32(vaddq_s32(q[r].v[i], vdupq_n_s32(128)), 8);
      up = vorrq_s32(up, vshlq_s32(vandq_s32(h, byte), left));
      down = vorrq_s32(down, vshlq_s32(vandq_s32(q[r].v[i], byte), left));
    }
    high.v[i] = up;
    low.v[i] = down;
  }
}
// acc[lane] += the sum of its four signed bytes.
[[gnu::always_inline]] inline I32x16 AddBytes(I32x16 acc, I32x16 bytes) {
  return Map<I32x16>([&](int i) __attribute__((always_inline)) {
    return vdotq_s32(acc.v[i], vdupq_n_s8(1), vreinterpretq_s8_s32(bytes.v[i]));
  });
}
// Four rows of 64 bytes, quarter by quarter: byte 4j + r of a quarter of mixed[i] is byte 4i + j of
// row r's quarter.
[[gnu::always_inline]] inline void InterleaveRows(const U8x64 (&rows)[4], U8x64 (&mixed)[4]) {
  const auto words = [](uint8x16_t x) { return vreinterpretq_u16_u8(x); };
  const auto bytes = [](uint16x8_t x) { return vreinterpretq_u8_u16(x); };
  for (int i = 0; i < 4; ++i) {
    const uint8x16_t a = rows[0].v[i], b = rows[1].v[i], c = rows[2].v[i], d = rows[3].v[i];
    const uint16x8_t ab_low = words(vzip1q_u8(a, b)), ab_high = words(vzip2q_u8(a, b)),
                     cd_low = words(vzip1q_u8(c, d)), cd_high = words(vzip2q_u8(c, d));
    mixed[0].v[i] = bytes(vzip1q_u16(ab_low, cd_low));
    mixed[1].v[i] = bytes(vzip2q_u16(ab_low, cd_low));
    mixed[2].v[i] = bytes(vzip1q_u16(ab_high, cd_high));
    mixed[3].v[i] = bytes(vzip2q_u16(ab_high, cd_high));
  }
}
// p[i] in every word of quarter i.
[[gnu::always_inline]] inline U8x64 SpreadFour(const std::int32_t* p) {
  return Map<U8x64>([&](int i) __attribute__((always_inline)) {
    return vreinterpretq_u8_s32(vdupq_n_s32(p[i]));
  });
}
// p[i] in every word of half i.
[[gnu::always_inline]] inline U8x64 SpreadTwo(const std::int32_t* p) {
  return Map<U8x64>([&](int i) __attribute__((always_inline)) {
    return vreinterpretq_u8_s32(vdupq_n_s32(p[i / 2]));
  });
}
// acc[lane] += sum over 4 bytes of level * coefficient, levels unsigned, coefficients signed.
// Requires: levels <= 127.
[[gnu::always_inline]] inline I32x16 DotBytes(I32x16 acc, U8x64 levels, U8x64 coefficients) {
  return Map<I32x16>([&](int i) __attribute__((always_inline)) {
    return vdotq_s32(acc.v[i], vreinterpretq_s8_u8(levels.v[i]),
                     vreinterpretq_s8_u8(coefficients.v[i]));
  });
}
constexpr bool kSumsInWords = false;
[[gnu::always_inline]] inline I32x16 AddNibbleProducts(I32x16 sum, U8x64 levels,
                                                       U8x64 coefficients) {
  return DotBytes(sum, levels, coefficients);
}
// Sums over 4 bytes of low * first + high * second. Levels are nibbles.
[[gnu::always_inline]] inline I32x16 DotNibbles(U8x64 low, U8x64 first, U8x64 high, U8x64 second) {
  return DotBytes(DotBytes(ZeroI(), low, first), high, second);
}
// As DotBytes for levels above 127, less kWideOffset times the coefficients.
[[gnu::always_inline]] inline I32x16 DotBytesWide(I32x16 acc, U8x64 levels, U8x64 coefficients) {
  return DotBytes(acc, TakeOffset(levels), coefficients);
}

[[gnu::always_inline]] inline void TransposeQuads(const std::uint8_t* const (&rows)[16],
                                                  std::ptrdiff_t offset, std::uint8_t* quads) {
  TransposeQuadsBy4(rows, offset, quads);
}

// Quarter i: the sums of the four words of quarter i of a, b, c and d.
[[gnu::always_inline]] inline I32x16 SumQuarters(I32x16 a, I32x16 b, I32x16 c, I32x16 d) {
  return Map<I32x16>([&](int i) __attribute__((always_inline)) {
    return vpaddq_s32(vpaddq_s32(a.v[i], b.v[i]), vpaddq_s32(c.v[i], d.v[i]));
  });
}
// Quarter j of v[i] and quarter i of v[j] change places.
[[gnu::always_inline]] inline void TransposeQuarters(I32x16 (&v)[4]) {
  for (int i = 0; i < 4; ++i) {
    for (int j = i + 1; j < 4; ++j) {
      const int32x4_t kept = v[i].v[j];
      v[i].v[j] = v[j].v[i];
      v[j].v[i] = kept;
    }
  }
}

// The six-bit numbers of a block of Q4_K (kernels/types.h): eight scales, then eight minimums, from
// three words. Reads 16 bytes.
[[gnu::always_inline]] inline I32x16 SixBitNumbers(const std::uint8_t* words) {
  std::uint32_t word[3];
  __builtin_memcpy(word, words, 12);
  const auto last =
      static_cast<std::int32_t>(word[0] >> 30 | (word[1] >> 30) << 2 | (word[2] >> 30) << 4);
  std::int32_t numbers[16];
  for (int k = 0; k < 15; ++k)
    numbers[k] = static_cast<std::int32_t>((word[k / 5] >> (6 * (k % 5))) & 63);
  numbers[15] = last;
  return LoadI32(numbers);
}
// The lower eight lanes of both, and the upper eight.
[[gnu::always_inline]] inline I32x16 LowHalves(I32x16 a, I32x16 b) {
  return {{a.v[0], a.v[1], b.v[0], b.v[1]}};
}
[[gnu::always_inline]] inline I32x16 HighHalves(I32x16 a, I32x16 b) {
  return {{a.v[2], a.v[3], b.v[2], b.v[3]}};
}

// Lanes added pairwise, halves first: the order of the reference.
[[gnu::always_inline]] inline float SumLanes(F32x16 x) {
  const float32x4_t low = vaddq_f32(x.v[0], x.v[2]), high = vaddq_f32(x.v[1], x.v[3]);
  const float32x4_t quarter = vaddq_f32(low, high);
  const float32x2_t pair = vadd_f32(vget_low_f32(quarter), vget_high_f32(quarter));
  return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}
[[gnu::always_inline]] inline float MaxLanes(F32x16 x) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.v[0], x.v[1]), vmaxq_f32(x.v[2], x.v[3])));
}
[[gnu::always_inline]] inline std::int32_t SumLanesI(I32x16 x) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(x.v[0], x.v[1]), vaddq_s32(x.v[2], x.v[3])));
}

}  // namespace
}  // namespace thermocline::kernels

#include "kernels/cpu/simd_neon_levels.h"
#include "kernels/cpu/simd_neon_weights.h"
