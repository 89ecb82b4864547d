// Integer products of groups with a tile of tokens, for ISAs whose dot product takes four columns
// at a time to 32 bits.
//
// Included by gemm_slab.inl.h.
namespace thermocline::kernels {
namespace {

// The offset with which levels are stored: the dot product of stored levels and activations, less
// the offset times the sum of the activations, is the product of the true levels.
constexpr std::int32_t OffsetOf(DType type) {
  return IsWide(type) ? kWideOffset : LayoutOf(type).offset;
}

// A quad as the dot product takes it.
template <DType type>
[[gnu::always_inline]] inline U8x64 LevelForDots(U8x64 raw) {
  return type == DType::kQ8_0 ? WideLevels(raw) : raw;
}
[[gnu::always_inline]] inline U8x64 Magnitudes(U8x64 levels) { return levels; }  // not used
template <DType>
[[gnu::always_inline]] inline void SetNumber(I32x16 number, int i, GroupScales& scales) {
  scales.scale[i] = ToF32(number);
}

}  // namespace
}  // namespace thermocline::kernels

#if defined(__ARM_FEATURE_MATMUL_INT8)
#include "kernels/cpu/dot_tile_i8mm.inl.h"
#elif defined(__ARM_NEON)
#include "kernels/cpu/dot_tile_neon.inl.h"
#else
namespace thermocline::kernels {
namespace {

// dot[p][t] += products of N quads of type `type`, from the first-th on in its order.
template <DType type, int first, int N, int P, int T, typename SomeGroup>
[[gnu::always_inline]] inline void DotTile(const SomeGroup* const (&group)[P], int at,
                                           const TokenRows& x, I32x16 (&dot)[P][T]) {
  Unroll<first, N>([&]<int i>() __attribute__((always_inline)) {
    constexpr int kQuad = QuadOrder(type, i);
    const std::int8_t* q = x.q + at * kActivationBlock + 4 * kQuad;
    U8x64 w[P];
    for (int p = 0; p < P; ++p) w[p] = group[p]->template level<kQuad>();
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) dot[p][t] = Dot4(dot[p][t], w[p], q + t * x.cols);
    }
  });
}

}  // namespace
}  // namespace thermocline::kernels
#endif

namespace thermocline::kernels {
namespace {

// Returns the start value of the sums of half a group (of a whole one: half = -1).
template <DType type, int half>
[[gnu::always_inline]] inline I32x16 BeginDot(const TokenRows& x, std::ptrdiff_t block) {
  if constexpr (OffsetOf(type) == 0) return ZeroI();
  I32x16 sum = Set1I(half == 0 ? x.half_sum[block] : x.sum[block]);
  if constexpr (half == 1) sum = SubI(sum, Set1I(x.half_sum[block]));
  return SubI(ZeroI(), ShiftLeftI(sum, __builtin_ctz(OffsetOf(type))));
}

// Exact products of groups, `at` among the tile's columns, times the sub-blocks' scales where a
// type has them.
template <DType type, int P, int T, typename SomeGroup>
[[gnu::always_inline]] inline void GroupProducts(const SomeGroup* const (&group)[P], int at,
                                                 const TokenRows& x, F32x16 (&value)[P][T]) {
  constexpr int kHalves = HasHalves(type) ? 2 : 1;
  Unroll<0, kHalves>([&]<int half>() __attribute__((always_inline)) {
    I32x16 dot[P][T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const I32x16 begin = BeginDot < type, kHalves == 2 ? half : -1 > (x, t * x.blocks + at);
      for (int p = 0; p < P; ++p) dot[p][t] = begin;
    }
    DotTile<type, 4 * half, 8 / kHalves>(group, at, x, dot);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) {
        F32x16 product = ToF32(dot[p][t]);
        if constexpr (IsBlockOf256(type) && type != DType::kTQ2_0)
          product = MulF(product, group[p]->scale[half]);
        value[p][t] = half == 0 ? product : AddF(value[p][t], product);
      }
    }
  });
}

}  // namespace
}  // namespace thermocline::kernels
