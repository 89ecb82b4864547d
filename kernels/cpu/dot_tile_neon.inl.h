// DotTile of dot_tile.inl.h with the dot product of Armv8.2, which takes four columns of a token
// out of a register that holds sixteen: two loads a token and group instead of eight.
//
// Included by dot_tile.inl.h.
#include <type_traits>

namespace thermocline::kernels {
namespace {

// Sixteen columns of each token.
template <int T>
struct TileInputs {
  int8x16_t of[T];

  [[gnu::always_inline]] TileInputs(const std::int8_t* q, std::ptrdiff_t cols) {
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) of[t] = vld1q_s8(q + t * cols);
  }
};

// dot[t] += products of a quad with columns 4 lane to 4 lane + 3 of the inputs.
template <int lane, int T>
[[gnu::always_inline]] inline void AddQuad(const U8x64& w, const TileInputs<T>& inputs,
                                           I32x16 (&dot)[T]) {
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k)
      dot[t].v[k] = vdotq_laneq_s32(dot[t].v[k], vreinterpretq_s8_u8(w.v[k]), inputs.of[t], lane);
  }
}

// dot[p][t] += products of N quads of type `type`, from the first-th on in its order. Decoded
// quads go half by half, which takes half the registers for inputs.
template <DType type, int first, int N, int P, int T, typename SomeGroup>
[[gnu::always_inline]] inline void DotTile(const SomeGroup* const (&group)[P], int at,
                                           const TokenRows& x, I32x16 (&dot)[P][T]) {
  static_assert(P == 1);
  const std::int8_t* q = x.q + at * kActivationBlock;
  if constexpr (N == 4 || std::is_same_v<SomeGroup, Group>) {
    Unroll<first / 4, N / 4>([&]<int half>() __attribute__((always_inline)) {
      const TileInputs<T> inputs(q + 16 * half, x.cols);
      Unroll<0, 4>([&]<int lane>() __attribute__((always_inline)) {
        AddQuad<lane>(group[0]->template level<4 * half + lane>(), inputs, dot[0]);
      });
    });
  } else {
    const TileInputs<T> low(q, x.cols), high(q + 16, x.cols);
    Unroll<0, 8>([&]<int i>() __attribute__((always_inline)) {
      constexpr int kQuad = QuadOrder(type, i);
      AddQuad<kQuad % 4>(group[0]->template level<kQuad>(), kQuad < 4 ? low : high, dot[0]);
    });
  }
}

}  // namespace
}  // namespace thermocline::kernels
