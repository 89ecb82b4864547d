// dot_peak.h on sixteen lanes: independent chains of the dot product alone, as many as hide its
// latency and fit the registers.
//
// Included after gemm.inl.h.
#include <initializer_list>

#include "kernels/dot_peak.h"

namespace thermocline::kernels {
namespace {

#if defined(THERMOCLINE_VNNI_256) && !THERMOCLINE_VNNI_256
inline I32x16 PeakProduct(I32x16 sum, U8x64 levels, U8x64 inputs) {
  return {_mm256_add_epi16(sum.a, _mm256_maddubs_epi16(levels.a, inputs.a)),
          _mm256_add_epi16(sum.b, _mm256_maddubs_epi16(levels.b, inputs.b))};
}
#else
inline I32x16 PeakProduct(I32x16 sum, U8x64 levels, U8x64 inputs) {
  return DotBytes(sum, levels, inputs);
}
#endif

// Separate variables for the sums, because g++ 12 keeps an array of them in memory.
std::int64_t DotPeakOf(int rounds) {
  alignas(64) const std::uint8_t bytes[64] = {1, 2, 3};
  U8x64 inputs = LoadU8(bytes);
  const auto add = [&](I32x16 & sum) __attribute__((always_inline)) {
    sum = PeakProduct(sum, inputs, inputs);
    KeepInRegisters(sum);
    KeepInRegisters(inputs);  // as if changed, so that no product is reused for two sums
  };
  I32x16 a = ZeroI(), b = a, c = a, d = a, e = a, f = a;
  I32x16 g = a, h = a, i = a, j = a, k = a, l = a;
  for (int round = 0; round < rounds; ++round) {
    add(a), add(b), add(c), add(d), add(e), add(f);
    if constexpr (kPeakChains == 12) add(g), add(h), add(i), add(j), add(k), add(l);
  }
  for (const I32x16& sum : {b, c, d, e, f, g, h, i, j, k, l}) a = AddI(a, sum);
  asm volatile("" : : "r"(SumLanesI(a)));  // keeps the sums alive
  return static_cast<std::int64_t>(rounds) * kPeakChains * 64;
}

}  // namespace
}  // namespace thermocline::kernels
