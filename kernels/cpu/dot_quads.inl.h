// Integer dot products on sixteen lanes, token by token: for ISAs whose dot product takes four
// columns at a time. The ISA's header includes it after Dot4 and Dot4Wide.
#pragma once

namespace thermocline::kernels {
namespace {

// dot[t] += sum over N quads of columns, from column `at` on, of weight * q[t].
// Weights are at most kLevelMax; above 127 (Q8_0's q + 128) less kWideOffset.
template <int T, int N, int kLevelMax>
inline void DotQuads(const U8x64* w, const std::int8_t* const (&q)[T], int at, I32x16 (&dot)[T]) {
  constexpr bool kWide = kLevelMax > 127;
  for (int t = 0; t < T; ++t) {
    I32x16 odd = ZeroI();  // a second chain hides the latency of the first
    for (int i = 0; i < N; i += 2) {
      const std::int8_t* x = q[t] + at + 4 * i;
      dot[t] = kWide ? Dot4Wide(dot[t], w[i], x) : Dot4(dot[t], w[i], x);
      odd = kWide ? Dot4Wide(odd, w[i + 1], x + 4) : Dot4(odd, w[i + 1], x + 4);
    }
    dot[t] = AddI(dot[t], odd);
  }
}

}  // namespace
}  // namespace thermocline::kernels
