// Levels and scales out of packed bits, on NEON.
//
// Included by simd_neon.h.
#pragma once

namespace thermocline::kernels {
namespace {

[[gnu::always_inline]] inline I32x16 LoadU16(const void* p) {
  return Map<I32x16>([&](int i) __attribute__((always_inline)) {
    return vreinterpretq_s32_u32(vmovl_u16(vld1_u16(static_cast<const std::uint16_t*>(p) + 4 * i)));
  });
}
// 2^(e - 128) of sixteen bytes e: 2^(e - 127) is e in the exponent, but for 2^-127, which has none.
[[gnu::always_inline]] inline F32x16 LoadE8M0(const void* p) {
  const I32x16 e = AndI(LoadI8(p), 255);
  return Map<F32x16>([&](int i) __attribute__((always_inline)) {
    const int32x4_t bits = vmaxq_s32(vshlq_n_s32(e.v[i], 23), vdupq_n_s32(0x00400000));
    return vmulq_n_f32(vreinterpretq_f32_s32(bits), 0.5F);
  });
}
// The low nibbles of eight bytes, then their high ones.
[[gnu::always_inline]] inline I32x16 LoadNibbles(const void* p) {
  const uint8x8_t v = vld1_u8(static_cast<const std::uint8_t*>(p));
  const uint16x8_t low = vmovl_u8(vand_u8(v, vdup_n_u8(15))), high = vmovl_u8(vshr_n_u8(v, 4));
  return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
           vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
           vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
           vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))}};
}
// Bits 2j and 2j+1 of every byte of `bits` as bits 4 and 5 over `low`.
template <int j>
[[gnu::always_inline]] inline U8x64 WithTwoBits(U8x64 low, U8x64 bits) {
  return OrShifted(low, bits, 4 - 2 * j, 0x30);
}
// Bit i of every byte of `bits` as bit `to` over `low`.
template <int i, int to>
[[gnu::always_inline]] inline U8x64 WithBit(U8x64 low, U8x64 bits) {
  return OrShifted(low, bits, to - i, 1 << to);
}
// `count` bits of every byte, from bit `first` on.
template <int first, int count>
[[gnu::always_inline]] inline U8x64 Bits(U8x64 v) {
  return Map<U8x64>([&](int i) __attribute__((always_inline)) {
    return vandq_u8(vshlq_u8(v.v[i], vdupq_n_s8(-first)), vdupq_n_u8((1 << count) - 1));
  });
}
// table[i] of every byte i. Requires: below 16.
[[gnu::always_inline]] inline U8x64 LookUp(const std::uint8_t (&table)[16], U8x64 indices) {
  const uint8x16_t all = vld1q_u8(table);
  return Map<U8x64>([&](int i)
                        __attribute__((always_inline)) { return vqtbl1q_u8(all, indices.v[i]); });
}
// Numbers as AddTimesSum takes them: here as they are.
[[gnu::always_inline]] inline I32x16 TwiceInWords(I32x16 x) { return x; }
// acc + number * sum, where `pairs` holds two words that add up to the sum.
[[gnu::always_inline]] inline I32x16 AddTimesSum(I32x16 acc, I32x16 number, std::int32_t pairs) {
  const std::int32_t sum = static_cast<std::int16_t>(pairs) + (pairs >> 16);
  return Map<I32x16>([&](int i) __attribute__((always_inline)) {
    return vmlaq_n_s32(acc.v[i], number.v[i], sum);
  });
}

}  // namespace
}  // namespace thermocline::kernels
