// 32 columns of a panel (kernels/types.h) as the operand of one matrix instruction.
//
// A warp multiplies 16 rows by 32 columns by 8 tokens at once. Lane 4g + t holds rows g and g + 8
// at columns 4t..4t+3 and 16+4t..16+4t+3: words of the panel's quads as they lie, so loads are
// plain and levels need a mask and a shift. Its results are i = 0..3: row g + 8 (i / 2), token
// 2t + i % 2. Levels with an offset become signed bytes by putting them in a byte's highest bits
// and flipping the topmost: 2^kShift (level - offset). Source: PTX ISA, fragments of mma.m16n8k32
// and m16n8k16.
#pragma once

#include "kernels/cuda/loads.h"
#include "kernels/cuda/sizes.h"
#include "kernels/layout/panel_view.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

inline constexpr int kTokenTile = 8;  // tokens of a matrix instruction

// Constants of a type's panels.
template <DType kType>
struct PanelTraits {
  static constexpr PanelLayout kLayout = LayoutOf(kType);
  static constexpr int kBlockGroups = SizesOf<kType>::kBlockSize / 32;  // groups with common scales
  static constexpr int kBlockBytes = SizesOf<kType>::kPanelBlockBytes;
  static constexpr int kHeader = kLayout.header, kGroupBytes = kLayout.group_bytes,
                       kMin = kLayout.min;
  static constexpr bool kK = kBlockGroups > 1, kHasMin = kLayout.min >= 0,
                        kFifth = kLayout.fifth_bits != 0, kIsQ8 = kType == DType::kQ8_0,
                        kIsQ6K = kType == DType::kQ6_K;
  static constexpr int kLevelWords = kIsQ6K ? 8 : kIsQ8 || kFifth ? 4 : 2;  // a lane loads
  static constexpr int kShift = kLayout.offset == 8    ? 4
                                : kLayout.offset == 16 ? 3
                                : kLayout.offset == 32 ? 2
                                                       : 0;
};

// A lane's loads of a group's levels. Nothing is decoded yet, so that many loads can be in flight.
template <DType kType>
struct GroupLevels {
  using P = PanelTraits<kType>;
  unsigned words[P::kLevelWords];  // [word of a row][row g, g + 8]

  // `word(r, j)`: word j of row g + 8 r, as a panel's quads and kernels/rows.h have them.
  template <typename Words>
  __device__ __forceinline__ void LoadFrom(const Words& word, int t) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (P::kIsQ6K) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          words[4 * half + r] = word(r, 3 * half + t / 2);
          words[4 * half + 2 + r] = word(r, 3 * half + 2);
        }
      } else {
        words[r] = word(r, t + (P::kFifth ? 1 : 0));
        if constexpr (P::kIsQ8) words[2 + r] = word(r, 4 + t);
        if constexpr (P::kFifth) words[2 + r] = word(r, 0);
      }
    }
  }
  __device__ __forceinline__ void Load(const std::uint8_t* group, int lane) {
    const std::uint8_t* row = group + lane / 4 * 4;
    LoadFrom([row](int r, int j) { return LoadWord(row + 8 * r * 4 + j * kQuadBytes); }, lane % 4);
  }

  // Rows g and g + 8 at columns 4t.., then at 16 + 4t...; Q6_K: of the two halves of 16 columns.
  __device__ __forceinline__ void Operand(int t, unsigned (&a)[4]) const {
    constexpr unsigned kLow = 0x0F0F0F0FU, kHigh = 0xF0F0F0F0U, kSign = 0x80808080U;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (P::kIsQ8) {
        a[r] = words[r] ^ kSign;
        a[2 + r] = words[2 + r] ^ kSign;
      } else if constexpr (P::kIsQ6K) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const unsigned low = (words[4 * half + r] >> (4 * (t & 1))) & kLow;
          const unsigned high = (words[4 * half + 2 + r] >> (2 * t)) & 0x03030303U;
          a[2 * half + r] = (low << 2 | high << 6) ^ kSign;
        }
      } else if constexpr (P::kFifth) {
        const unsigned fifth[2] = {(words[2 + r] >> t) & 0x01010101U,
                                   (words[2 + r] >> (4 + t)) & 0x01010101U};
        const unsigned low[2] = {words[r] & kLow, (words[r] >> 4) & kLow};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const unsigned level = low[half] | fifth[half] << 4;
          a[2 * half + r] = P::kShift != 0 ? level << 3 ^ kSign : level;
        }
      } else if constexpr (P::kShift != 0) {
        a[r] = ((words[r] << 4) & kHigh) ^ kSign;
        a[2 + r] = (words[r] & kHigh) ^ kSign;
      } else {
        a[r] = words[r] & kLow;
        a[2 + r] = (words[r] >> 4) & kLow;
      }
    }
  }
};

// Products of a group with eight tokens, exact; `b` are words t and 4 + t of token g's levels. Of
// 32 columns; Q6_K: of the first 16 and of the others. They begin at the bits of 1.5 * 2^23, so
// that a sum below 2^22 is a float by subtracting that: conversions run at a quarter of its rate.
template <DType kType>
struct Dots {
  using P = PanelTraits<kType>;
  static constexpr int kParts = P::kIsQ6K ? 2 : 1, kZero = 0x4B400000;
  int sums[kParts][4];

  __device__ __forceinline__ Dots() {
#pragma unroll
    for (int i = 0; i < 4 * kParts; ++i) sums[i / 4][i % 4] = kZero;
  }
  __device__ __forceinline__ void Multiply(const GroupLevels<kType>& levels, int t,
                                           const unsigned (&b)[2]) {
    unsigned a[4];
    levels.Operand(t, a);
    if constexpr (P::kIsQ6K) {
      ptx::MmaK16(sums[0], {a[0], a[1]}, b[0]);
      ptx::MmaK16(sums[1], {a[2], a[3]}, b[1]);
    } else {
      ptx::MmaK32(sums[0], a, b);
    }
  }
  __device__ __forceinline__ float Get(int part, int i) const {
    constexpr float kUnit = 1.0F / static_cast<float>(1 << P::kShift);
    return __fmaf_rn(__int_as_float(sums[part][i]), kUnit, -12582912.0F * kUnit);
  }
};

// A row's numbers for one group: d and m; K types the scale and minimum of the sub-block; Q6_K the
// scales of its two sub-blocks.
struct alignas(8) Pair {
  float first, second;
};
template <DType kType>
struct RowNumbers {
  using P = PanelTraits<kType>;
  unsigned words[P::kK && !P::kIsQ6K ? 3 : 2];  // as loaded

  // `sub`: the group's place in its block.
  __device__ __forceinline__ void Load(const std::uint8_t* block, int sub, int row) {
    if constexpr (P::kIsQ6K) {
      words[0] = __ldg(block + 32 + 2 * sub * kPanelRows + row);
      words[1] = __ldg(block + 32 + (2 * sub + 1) * kPanelRows + row);
    } else if constexpr (P::kK) {
#pragma unroll
      for (int w = 0; w < 3; ++w) words[w] = LoadWord(block + 64 + w * kQuadBytes + row * 4);
    } else {
      words[0] = LoadHalfBits(block + 2 * row);
      words[1] = P::kHasMin ? LoadHalfBits(block + P::kMin + 2 * row) : 0;
    }
  }
  __device__ __forceinline__ Pair Decode(int sub) const {
    if constexpr (P::kIsQ6K) {
      return {static_cast<float>(static_cast<std::int8_t>(words[0])),
              static_cast<float>(static_cast<std::int8_t>(words[1]))};
    } else if constexpr (P::kK) {
      return {static_cast<float>(SixBits(words, sub)), static_cast<float>(SixBits(words, 8 + sub))};
    } else {
      return {FromHalfBits(words[0]), FromHalfBits(words[1])};
    }
  }
};

// The term of one group in a chain of sums: factor times dot, and min times sum.
struct alignas(16) Term {
  float factor, dot, min, sum;
};
// Computes a term from dots (Q6_K: two), the row's numbers, and the scale and scaled sum of the
// activations. Products of dots and six- or eight-bit scales are below 2^24 and so exact, as are
// their sums.
template <DType kType>
__device__ __forceinline__ Term TermOf(const float* dots, const Pair& row, float scale,
                                       float scaled_sum) {
  using P = PanelTraits<kType>;
  if constexpr (P::kIsQ6K) {
    return {scale, __fadd_rn(__fmul_rn(dots[0], row.first), __fmul_rn(dots[1], row.second)), 0, 0};
  } else if constexpr (P::kK) {
    return {scale, __fmul_rn(dots[0], row.first), row.second, scaled_sum};
  } else {
    return {__fmul_rn(row.first, scale), dots[0], row.second, scaled_sum};
  }
}

// Q8 activations of `tokens` tokens.
struct Q8Tokens {
  const std::int8_t* q;
  const float* scale;
  const float* scaled_sum;
  int cols;
  int tokens;

  // Words of the token's levels.
  __device__ __forceinline__ const unsigned* words(int token) const {
    return reinterpret_cast<const unsigned*>(q + StartOf(token, cols));
  }
};

// One output's sum, in gemm.h's order.
template <DType kType>
struct Chain {
  using P = PanelTraits<kType>;
  float acc = 0, dots = 0, mins = 0;

  __device__ __forceinline__ void Add(const Term& term) {
    if constexpr (P::kK) {
      dots = __fmaf_rn(term.dot, term.factor, dots);
      if constexpr (P::kHasMin) mins = __fmaf_rn(term.min, term.sum, mins);
    } else {
      acc = __fmaf_rn(term.factor, term.dot, acc);
      if constexpr (P::kHasMin) acc = __fmaf_rn(term.min, term.sum, acc);
    }
  }
  // K types, after the eight groups of a block.
  __device__ __forceinline__ void EndBlock(float d, float min) {
    acc = __fmaf_rn(d, dots, acc);
    if constexpr (P::kHasMin) acc = __fmaf_rn(-min, mins, acc);
    dots = mins = 0;
  }
};

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
