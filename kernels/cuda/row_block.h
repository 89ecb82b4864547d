// One row's blocks of 32 columns, out of the layouts of kernels/rows.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/loads.h"
#include "kernels/cuda/sizes.h"
#include "kernels/rows.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

__device__ inline float LoadHalf(const std::uint8_t* p) {
  return ptx::HalfToFloat(*reinterpret_cast<const std::uint16_t*>(p));
}

// The layout of rows of a quantised type, as RowLayout and LayoutOf of kernels/reference.
template <DType type>
struct RowTraits {
  static constexpr bool kIsK = type == DType::kQ4_K || type == DType::kQ5_K;
  static constexpr bool kIsQ6 = type == DType::kQ6_K;
  static constexpr bool kFifth =
      type == DType::kQ5_0 || type == DType::kQ5_1 || type == DType::kQ5_K;
  static constexpr bool kHasMin = type == DType::kQ4_1 || type == DType::kQ5_1 || kIsK;
  static constexpr int kHalves = type == DType::kQ4_1 || type == DType::kQ5_1 ? 2 : 1;
  // 32-bit words of a block's levels.
  static constexpr int kWords = type == DType::kQ8_0 ? 8 : kIsQ6 ? 6 : kFifth ? 5 : 4;
  // A level's value is level - kOffset; Q8_0's offset is taken by flipping the sign bit.
  static constexpr int kOffset = type == DType::kQ4_0   ? 8
                                 : type == DType::kQ5_0 ? 16
                                 : kIsQ6                ? 32
                                                        : 0;
};

// A lane's part of a row's block of 32 columns.
template <DType type>
struct RowBlock {
  std::uint32_t words[RowTraits<type>::kWords];
  // Types with blocks of 32: d and m. K: d and dmin of 256 columns; Q6_K: d of 256 columns.
  float d, m;
  int scale, second;  // K: the sub-block's scale and minimum; Q6_K: its two scales
};

// `n` words at an even address.
template <int n, bool vectors>
__device__ inline void LoadWords(const std::uint8_t* p, bool aligned, std::uint32_t* out) {
  if (aligned && vectors) {
    for (int i = 0; i < n / 4; ++i) {
      const uint4 four = LoadAt<uint4>(p, i);
      out[4 * i] = four.x;
      out[4 * i + 1] = four.y;
      out[4 * i + 2] = four.z;
      out[4 * i + 3] = four.w;
    }
  } else if (aligned) {
    for (int i = 0; i < n; ++i) out[i] = LoadAt<std::uint32_t>(p, i);
  } else {
    for (int i = 0; i < n; ++i)
      out[i] = LoadHalfBits(p + 4 * i) | LoadHalfBits(p + 4 * i + 2) << 16;
  }
}

// Scales alone, of block `block` of a row of `blocks` blocks of 32. Requires: not Q6_K.
template <DType type>
__device__ inline void LoadRowScales(const std::uint8_t* row, int block, int blocks, bool aligned,
                                     float* d, float* m, int* scale, int* second) {
  using Row = RowTraits<type>;
  if constexpr (Row::kIsK) {
    const std::uint8_t* head = row + block / 8 * SizesOf<type>::kBlockBytes;
    std::uint32_t words[4];
    LoadWords<4, true>(head, aligned, words);
    *d = FromHalfBits(words[0] & 0xFFFFU);
    *m = FromHalfBits(words[0] >> 16);
    *scale = SixBits(words + 1, block % 8);
    *second = SixBits(words + 1, 8 + block % 8);
  } else {
    const int group = block & ~7, in_group = blocks - group < 8 ? blocks - group : 8;
    const std::uint8_t* head = row + group * SizesOf<type>::kBlockBytes;
    *d = LoadHalf(head + 2 * (block - group));
    *m = Row::kHalves == 2 ? LoadHalf(head + 2 * (in_group + block - group)) : 0;
    *scale = *second = 0;
  }
}

// Returns the words of a block. Requires: not Q6_K.
template <DType type>
__device__ inline const std::uint8_t* RowWords(const std::uint8_t* row, int block, int blocks) {
  using Row = RowTraits<type>;
  if constexpr (Row::kIsK) {
    return row + block / 8 * SizesOf<type>::kBlockBytes + 16 + block % 8 * Row::kWords * 4;
  } else {
    const int group = block & ~7, in_group = blocks - group < 8 ? blocks - group : 8;
    return row + group * SizesOf<type>::kBlockBytes + Row::kHalves * 2 * in_group +
           (block - group) * Row::kWords * 4;
  }
}

// `aligned`: the row begins at a multiple of 16 bytes, and its groups are whole.
template <DType type>
__device__ inline void LoadRowBlock(const std::uint8_t* row, int block, int blocks, bool aligned,
                                    RowBlock<type>& out) {
  using Row = RowTraits<type>;
  if constexpr (Row::kIsQ6) {
    const std::uint8_t* head = row + block / 8 * SizesOf<type>::kBlockBytes;
    LoadWords<6, false>(head + block % 8 * 24, false, out.words);
    out.scale = static_cast<std::int8_t>(head[192 + block % 8 * 2]);
    out.second = static_cast<std::int8_t>(head[193 + block % 8 * 2]);
    out.d = LoadHalf(head + 208);
    out.m = 0;
  } else {
    LoadWords<Row::kWords, Row::kWords % 4 == 0>(RowWords<type>(row, block, blocks), aligned,
                                                 out.words);
    LoadRowScales<type>(row, block, blocks, aligned, &out.d, &out.m, &out.scale, &out.second);
  }
}

// Levels of columns 4 i .. 4 i + 3 in the bytes of out[i]. Q8_0's are signed and less their offset.
template <DType type>
__device__ inline void Levels(const std::uint32_t* words, std::uint32_t out[8]) {
  using Row = RowTraits<type>;
  if constexpr (type == DType::kQ8_0) {
    for (int i = 0; i < 8; ++i) out[i] = words[i] ^ 0x80808080U;
  } else if constexpr (Row::kIsQ6) {
    for (int sub = 0; sub < 2; ++sub) {
      const std::uint32_t high = words[3 * sub + 2];
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t low = words[3 * sub + i / 2] >> (i % 2 * 4);
        out[4 * sub + i] = (low & 0x0F0F0F0FU) | ((high >> (2 * i)) & 0x03030303U) << 4;
      }
    }
  } else {
    const std::uint32_t* nibbles = words + (Row::kFifth ? 1 : 0);
    for (int i = 0; i < 4; ++i) {
      out[i] = nibbles[i] & 0x0F0F0F0FU;
      out[4 + i] = (nibbles[i] >> 4) & 0x0F0F0F0FU;
    }
    if constexpr (Row::kFifth) {
      for (int i = 0; i < 8; ++i) out[i] |= ((words[0] >> i) & 0x01010101U) << 4;
    }
  }
}

// The bytes of four words, transposed: out[c] holds byte c of each.
__device__ inline void Transpose(const std::uint32_t in[4], std::uint32_t out[4]) {
  const std::uint32_t low01 = __byte_perm(in[0], in[1], 0x5140),
                      low23 = __byte_perm(in[2], in[3], 0x5140),
                      high01 = __byte_perm(in[0], in[1], 0x7362),
                      high23 = __byte_perm(in[2], in[3], 0x7362);
  out[0] = __byte_perm(low01, low23, 0x5410);
  out[1] = __byte_perm(low01, low23, 0x7632);
  out[2] = __byte_perm(high01, high23, 0x5410);
  out[3] = __byte_perm(high01, high23, 0x7632);
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
