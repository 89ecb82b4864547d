// Integer dot products with the byte matrix product of Armv8.6: two rows, two tokens and eight
// columns an instruction, twice the work of a dot product. Counterpart of dot_quads.inl.h.
#pragma once

namespace thermocline::kernels {
namespace {

inline int8x16_t ZipQuads(uint8x16_t a, uint8x16_t b, bool high) {
  const uint32x4_t x = vreinterpretq_u32_u8(a), y = vreinterpretq_u32_u8(b);
  return vreinterpretq_s8_u32(high ? vzip2q_u32(x, y) : vzip1q_u32(x, y));
}

// dot[t], dot[t + 1] += products of N quads with two tokens.
template <int N, bool kWide>
inline void DotQuadsOfPair(const U8x64* w, const std::int8_t* x, const std::int8_t* y,
                           I32x16& dot_x, I32x16& dot_y) {
  int32x4_t sums[8];  // rows 2r and 2r + 1: {row, x}, {row, y}, {row + 1, x}, {row + 1, y}
  for (auto& sum : sums) sum = vdupq_n_s32(0);
  for (int i = 0; i < N; i += 2) {
    const U8x64 even = kWide ? TakeOffset(w[i]) : w[i];
    const U8x64 odd = kWide ? TakeOffset(w[i + 1]) : w[i + 1];
    const int8x16_t tokens = vcombine_s8(vld1_s8(x + 4 * i), vld1_s8(y + 4 * i));
    for (int k = 0; k < 4; ++k) {
      sums[2 * k] = vmmlaq_s32(sums[2 * k], ZipQuads(even.v[k], odd.v[k], false), tokens);
      sums[2 * k + 1] = vmmlaq_s32(sums[2 * k + 1], ZipQuads(even.v[k], odd.v[k], true), tokens);
    }
  }
  for (int k = 0; k < 4; ++k) {
    dot_x.v[k] = vaddq_s32(dot_x.v[k], vuzp1q_s32(sums[2 * k], sums[2 * k + 1]));
    dot_y.v[k] = vaddq_s32(dot_y.v[k], vuzp2q_s32(sums[2 * k], sums[2 * k + 1]));
  }
}

// dot[t] += sum over N quads of columns, from column `at` on, of weight * q[t].
template <int T, int N, int kLevelMax>
inline void DotQuads(const U8x64* w, const std::int8_t* const (&q)[T], int at, I32x16 (&dot)[T]) {
  constexpr bool kWide = kLevelMax > 127;
  int t = 0;
  for (; t + 2 <= T; t += 2)
    DotQuadsOfPair<N, kWide>(w, q[t] + at, q[t + 1] + at, dot[t], dot[t + 1]);
  for (; t < T; ++t) {
    for (int i = 0; i < N; ++i) {
      const std::int8_t* x = q[t] + at + 4 * i;
      dot[t] = kWide ? Dot4Wide(dot[t], w[i], x) : Dot4(dot[t], w[i], x);
    }
  }
}

}  // namespace
}  // namespace thermocline::kernels
