// Integer products of groups with a tile of tokens, with AVX2's byte products, whose words are
// added up before they are widened.
//
// A type's levels less its offset are at most 8, 16 or 32, times 127, in pairs: 8 quads (of halves
// the 4 of a sub-block) fit 16 bits. So the words begin with the offset's part, from the sums of
// pairs, and wrap until the last product is in. Without an offset levels to 15 fit 8 times, to 31
// four times. Scales of sub-blocks are multiplied while words are widened. Wide types fit once:
// their products are of magnitudes, the activations taking the signs.
// Source: ik_llama.cpp, pull request 331, counts how many sums fit.
//
// Included by gemm_slab.inl.h.
namespace thermocline::kernels {
namespace {

constexpr bool HasOffset(DType type) { return LayoutOf(type).offset != 0; }
// Quads whose products are added up in words.
constexpr int QuadsInWords(DType type) {
  if (HasHalves(type)) return 4;
  return HasOffset(type) || LayoutOf(type).fifth_bits == 0 ? 8 : 4;
}
constexpr int OffsetShift(DType type) { return __builtin_ctz(LayoutOf(type).offset); }

// A quad as the products take it: Q8_0's with its sign.
template <DType type>
[[gnu::always_inline]] inline U8x64 LevelForDots(U8x64 raw) {
  if constexpr (type != DType::kQ8_0) return raw;
  const __m256i offset = _mm256_set1_epi8(-128);
  return {_mm256_xor_si256(raw.a, offset), _mm256_xor_si256(raw.b, offset)};
}
[[gnu::always_inline]] inline U8x64 Magnitudes(U8x64 levels) {
  return {_mm256_abs_epi8(levels.a), _mm256_abs_epi8(levels.b)};
}
constexpr bool HasSignedNumbers(DType type) { return LayoutOf(type).min < 0; }
// The number twice, as words; of wide types, whose sums are not words, as it is. Numbers without a
// sign are bytes.
template <DType type>
[[gnu::always_inline]] inline void SetNumber(I32x16 number, int i, GroupScales& scales) {
  if constexpr (IsWide(type)) {
    scales.scale[i] = ToF32(number);
    return;
  }
  const __m256i twice = _mm256_broadcastsi128_si256(
      HasSignedNumbers(type)
          ? _mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13)
          : _mm_setr_epi8(0, -1, 0, -1, 4, -1, 4, -1, 8, -1, 8, -1, 12, -1, 12, -1));
  scales.factor[i] = {_mm256_shuffle_epi8(number.a, twice), _mm256_shuffle_epi8(number.b, twice)};
}

// The offset's part of the sums in words of a group, or of half a group.
template <DType type, int half>
[[gnu::always_inline]] inline __m256i OffsetWords(const std::int32_t* pair_sum) {
  const __m256i first = _mm256_set1_epi32(pair_sum[half]);
  if constexpr (HasHalves(type)) return _mm256_slli_epi16(first, OffsetShift(type));
  const __m256i both = _mm256_add_epi16(first, _mm256_set1_epi32(pair_sum[1]));
  return _mm256_slli_epi16(both, OffsetShift(type));
}

// Products of quads in words, added up: `run` of QuadsInWords quads.
template <DType type, int run, int T, typename SomeGroup>
[[gnu::always_inline]] inline void AddInWords(const SomeGroup& group, int at, const TokenRows& x,
                                              U8x64 (&sum)[T]) {
  constexpr int kRun = QuadsInWords(type);
  Unroll<run * kRun, kRun>([&]<int i>() __attribute__((always_inline)) {
    constexpr int kQuad = QuadOrder(type, i);
    constexpr bool kFirst = i == run * kRun;
    const U8x64 w = group.template level<kQuad>();
    const std::int8_t* q = x.q + at * kActivationBlock + 4 * kQuad;
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      const __m256i inputs = BroadcastQuad(q + t * x.cols);
      const U8x64 products = {_mm256_maddubs_epi16(w.a, inputs), _mm256_maddubs_epi16(w.b, inputs)};
      if constexpr (!kFirst) {
        sum[t] = {_mm256_add_epi16(sum[t].a, products.a), _mm256_add_epi16(sum[t].b, products.b)};
      } else if constexpr (HasOffset(type)) {
        const __m256i offset = OffsetWords<type, run>(x.pair_sum + 2 * (t * x.blocks + at));
        sum[t] = {_mm256_sub_epi16(products.a, offset), _mm256_sub_epi16(products.b, offset)};
      } else {
        sum[t] = products;
      }
      // Forced here, because a compiler that adds up later keeps all products in memory.
      KeepInRegisters(sum[t]);
    }
  });
}

// Wide types: the sign of a weight on the activation.
template <int T, typename SomeGroup>
[[gnu::always_inline]] inline void AddSigned(const SomeGroup& group, int at, const TokenRows& x,
                                             I32x16 (&dot)[T]) {
  for (I32x16& sum : dot) sum = ZeroI();
  Unroll<0, 8>([&]<int quad>() __attribute__((always_inline)) {
    const U8x64 w = group.template level<quad>(), size = group.template magnitude<quad>();
    const std::int8_t* q = x.q + at * kActivationBlock + 4 * quad;
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      const __m256i inputs = BroadcastQuad(q + t * x.cols);
      dot[t] = {AddQuads(dot[t].a, size.a, _mm256_sign_epi8(inputs, w.a)),
                AddQuads(dot[t].b, size.b, _mm256_sign_epi8(inputs, w.b))};
      KeepInRegisters(dot[t]);
    }
  });
}

// Exact products of groups, `at` among the tile's columns, times the sub-blocks' scales where a
// type has them.
template <DType type, int P, int T, typename SomeGroup>
[[gnu::always_inline]] inline void GroupProducts(const SomeGroup* const (&group)[P], int at,
                                                 const TokenRows& x, F32x16 (&value)[P][T]) {
  static_assert(P == 1);
  I32x16 dot[T];
  if constexpr (IsWide(type)) {
    AddSigned<T>(*group[0], at, x, dot);
  } else {
    const __m256i one = _mm256_set1_epi16(1);
    Unroll<0, 8 / QuadsInWords(type)>([&]<int run>() __attribute__((always_inline)) {
      U8x64 sum[T];
      AddInWords<type, run>(*group[0], at, x, sum);
      I32x16 factor = {one, one};
      if constexpr (IsBlockOf256(type))
        factor = LoadI32(group[0]->factor + (HasHalves(type) ? run : 0));
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const I32x16 wide = {_mm256_madd_epi16(sum[t].a, factor.a),
                             _mm256_madd_epi16(sum[t].b, factor.b)};
        dot[t] = run == 0 ? wide : AddI(dot[t], wide);
      }
    });
  }
  for (int t = 0; t < T; ++t) {
    value[0][t] = ToF32(dot[t]);
    if constexpr (IsWide(type) && IsBlockOf256(type))
      value[0][t] = MulF(value[0][t], group[0]->scale[0]);
  }
}

}  // namespace
}  // namespace thermocline::kernels
