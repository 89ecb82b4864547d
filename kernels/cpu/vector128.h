// Sixteen bytes: the operations that transposing words needs on every ISA.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif

namespace thermocline::kernels {
namespace {

#if defined(__x86_64__)

using V128 = __m128i;
inline V128 Load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline void Store128(void* p, V128 v) { _mm_storeu_si128(static_cast<__m128i*>(p), v); }
// Word j of v[i] becomes word i of v[j].
inline void Transpose4(V128 (&v)[4]) {
  const V128 a = _mm_unpacklo_epi32(v[0], v[1]), b = _mm_unpackhi_epi32(v[0], v[1]),
             c = _mm_unpacklo_epi32(v[2], v[3]), d = _mm_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm_unpacklo_epi64(a, c);
  v[1] = _mm_unpackhi_epi64(a, c);
  v[2] = _mm_unpacklo_epi64(b, d);
  v[3] = _mm_unpackhi_epi64(b, d);
}
// The low halves of eight words, and their high halves.
inline void SplitHalves(V128 a, V128 b, V128& low, V128& high) {
  const V128 mask = _mm_set1_epi32(0xFFFF);
  low = _mm_packus_epi32(_mm_and_si128(a, mask), _mm_and_si128(b, mask));
  high = _mm_packus_epi32(_mm_srli_epi32(a, 16), _mm_srli_epi32(b, 16));
}
// Prefetches into the second-level cache. Not g++ 12's intrinsic: the compiler treats a function
// that only prefetches as one without effect, and drops it before inlining.
inline void Prefetch(const void* p) { asm volatile("prefetcht1 (%0)" : : "r"(p)); }
// Prefetches into the first-level cache.
inline void PrefetchNear(const void* p) { asm volatile("prefetcht0 (%0)" : : "r"(p)); }

#else

using V128 = uint32x4_t;
inline V128 Load128(const void* p) {
  return vreinterpretq_u32_u8(vld1q_u8(static_cast<const std::uint8_t*>(p)));
}
inline void Store128(void* p, V128 v) {
  vst1q_u8(static_cast<std::uint8_t*>(p), vreinterpretq_u8_u32(v));
}
inline void Transpose4(V128 (&v)[4]) {
  const auto wide = [](V128 x) { return vreinterpretq_u64_u32(x); };
  const auto narrow = [](uint64x2_t x) { return vreinterpretq_u32_u64(x); };
  const V128 a = vzip1q_u32(v[0], v[1]), b = vzip2q_u32(v[0], v[1]), c = vzip1q_u32(v[2], v[3]),
             d = vzip2q_u32(v[2], v[3]);
  v[0] = narrow(vzip1q_u64(wide(a), wide(c)));
  v[1] = narrow(vzip2q_u64(wide(a), wide(c)));
  v[2] = narrow(vzip1q_u64(wide(b), wide(d)));
  v[3] = narrow(vzip2q_u64(wide(b), wide(d)));
}
inline void SplitHalves(V128 a, V128 b, V128& low, V128& high) {
  const auto halves = [](V128 x) { return vreinterpretq_u16_u32(x); };
  low = vreinterpretq_u32_u16(vuzp1q_u16(halves(a), halves(b)));
  high = vreinterpretq_u32_u16(vuzp2q_u16(halves(a), halves(b)));
}
inline void Prefetch(const void* p) { asm volatile("prfm pldl2keep, [%0]" : : "r"(p)); }
inline void PrefetchNear(const void* p) { asm volatile("prfm pldl1keep, [%0]" : : "r"(p)); }

#endif

// Four words of each of sixteen rows, from `offset` bytes on, as four quads.
inline void TransposeQuadsBy4(const std::uint8_t* const (&rows)[16], std::ptrdiff_t offset,
                              std::uint8_t* quads) {
  for (int lane = 0; lane < 16; lane += 4) {
    V128 v[4];
    for (int i = 0; i < 4; ++i) v[i] = Load128(rows[lane + i] + offset);
    Transpose4(v);
    for (int i = 0; i < 4; ++i) Store128(quads + i * 64 + lane * 4, v[i]);
  }
}

}  // namespace
}  // namespace thermocline::kernels
