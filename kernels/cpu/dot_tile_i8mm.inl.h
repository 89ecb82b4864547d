// DotTile of dot_tile.inl.h with the byte matrix product of Armv8.6: two rows, two tokens and eight
// columns an instruction, twice the work of a dot product.
//
// Included by dot_tile.inl.h.
namespace thermocline::kernels {
namespace {

[[gnu::always_inline]] inline int8x16_t ZipQuads(uint8x16_t a, uint8x16_t b, bool high) {
  const uint32x4_t x = vreinterpretq_u32_u8(a), y = vreinterpretq_u32_u8(b);
  return vreinterpretq_s8_u32(high ? vzip2q_u32(x, y) : vzip1q_u32(x, y));
}

// Products of N quads with two tokens: of rows 2r and 2r + 1 in sums[r], {row, x}, {row, y},
// {row + 1, x}, {row + 1, y}.
template <DType type, int first, int N, typename SomeGroup>
[[gnu::always_inline]] inline void DotQuadsOfPair(const SomeGroup& group, const std::int8_t* x,
                                                  const std::int8_t* y, I32x16& dot_x,
                                                  I32x16& dot_y) {
  int32x4_t sums[8];
  for (auto& sum : sums) sum = vdupq_n_s32(0);
  Unroll<0, N / 2>([&]<int i>() __attribute__((always_inline)) {
    constexpr int kQuad = first + 2 * i;
    const U8x64 even = group.template level<kQuad>(), odd = group.template level<kQuad + 1>();
    const int8x16_t tokens = vcombine_s8(vld1_s8(x + 4 * kQuad), vld1_s8(y + 4 * kQuad));
    for (int k = 0; k < 4; ++k) {
      sums[2 * k] = vmmlaq_s32(sums[2 * k], ZipQuads(even.v[k], odd.v[k], false), tokens);
      sums[2 * k + 1] = vmmlaq_s32(sums[2 * k + 1], ZipQuads(even.v[k], odd.v[k], true), tokens);
    }
  });
  for (int k = 0; k < 4; ++k) {
    dot_x.v[k] = vaddq_s32(dot_x.v[k], vuzp1q_s32(sums[2 * k], sums[2 * k + 1]));
    dot_y.v[k] = vaddq_s32(dot_y.v[k], vuzp2q_s32(sums[2 * k], sums[2 * k + 1]));
  }
}

// dot[p][t] += products of N quads from the first-th on.
template <DType type, int first, int N, int P, int T, typename SomeGroup>
[[gnu::always_inline]] inline void DotTile(const SomeGroup* const (&group)[P], int at,
                                           const TokenRows& x, I32x16 (&dot)[P][T]) {
  static_assert(P == 1);
  const std::int8_t* q = x.q + at * kActivationBlock;
  int t = 0;
  for (; t + 2 <= T; t += 2) {
    DotQuadsOfPair<type, first, N>(*group[0], q + t * x.cols, q + (t + 1) * x.cols, dot[0][t],
                                   dot[0][t + 1]);
  }
  for (; t < T; ++t) {
    Unroll<first, N>([&]<int quad>() __attribute__((always_inline)) {
      dot[0][t] = Dot4(dot[0][t], group[0]->template level<quad>(), q + t * x.cols + 4 * quad);
    });
  }
}

}  // namespace
}  // namespace thermocline::kernels
