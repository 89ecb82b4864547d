// Integer dot products on sixteen lanes with AVX2's bytes-to-words products, whose words are added
// up before they are widened: a level of 0 to 15 times an activation of -127 to 127, in pairs, fits
// 16 bits eight times (15 * 127 * 2 * 8 = 30,480), 0 to 31 four times, 0 to 63 twice. The sums are
// the same integers. Counterpart of dot_quads.inl.h.
//
// Instructions for 32 columns of a panel and one token, without loads: 34 for levels to 15, where
// widening every product took 56; 36 for levels to 31; 40 for levels to 63.
// Source: ik_llama.cpp, pull request 331, counts how many sums fit.
#pragma once

namespace thermocline::kernels {
namespace {

// Products with one quad of activations that may be added up in 16 bits.
constexpr int QuadsInWords(int level_max) { return level_max <= 15 ? 8 : level_max <= 31 ? 4 : 2; }

// Sums of T tokens' products in words, and how they are added up.
template <int T>
struct WordSums {
  __m256i a[T], b[T];

  // Sums are made in this order: a compiler that adds up later keeps all products, in memory.
  void Keep(int t) { asm("" : "+x"(a[t]), "+x"(b[t])); }
  void Begin(U8x64 w, const std::int8_t* const (&q)[T], int at) {
    for (int t = 0; t < T; ++t) {
      const __m256i quad = BroadcastQuad(q[t] + at);
      a[t] = _mm256_maddubs_epi16(w.a, quad);
      b[t] = _mm256_maddubs_epi16(w.b, quad);
      Keep(t);
    }
  }
  void Add(U8x64 w, const std::int8_t* const (&q)[T], int at) {
    for (int t = 0; t < T; ++t) {
      const __m256i quad = BroadcastQuad(q[t] + at);
      a[t] = _mm256_add_epi16(a[t], _mm256_maddubs_epi16(w.a, quad));
      b[t] = _mm256_add_epi16(b[t], _mm256_maddubs_epi16(w.b, quad));
      Keep(t);
    }
  }
  void Widen(I32x16 (&dot)[T]) const {
    const __m256i one = _mm256_set1_epi16(1);
    for (int t = 0; t < T; ++t) {
      dot[t].a = _mm256_add_epi32(dot[t].a, _mm256_madd_epi16(a[t], one));
      dot[t].b = _mm256_add_epi32(dot[t].b, _mm256_madd_epi16(b[t], one));
    }
  }
};

// dot[t] += sum over N quads of columns, from column `at` on, of weight * q[t]. Weights are at most
// kLevelMax; above 127 (Q8_0's q + 128) less kWideOffset.
template <int T, int N, int kLevelMax>
inline void DotQuads(const U8x64* w, const std::int8_t* const (&q)[T], int at, I32x16 (&dot)[T]) {
  if constexpr (kLevelMax > 127) {
    for (int i = 0; i < N; ++i) {
      for (int t = 0; t < T; ++t) dot[t] = Dot4Wide(dot[t], w[i], q[t] + at + 4 * i);
    }
  } else {
    constexpr int kRun = QuadsInWords(kLevelMax) < N ? QuadsInWords(kLevelMax) : N;
#pragma GCC unroll 8
    for (int first = 0; first < N; first += kRun) {
      WordSums<T> sums;
      sums.Begin(w[first], q, at + 4 * first);
#pragma GCC unroll 8
      for (int i = first + 1; i < first + kRun; ++i) sums.Add(w[i], q, at + 4 * i);
      sums.Widen(dot);
    }
  }
}

}  // namespace
}  // namespace thermocline::kernels
