// 32 columns of a panel as bytes, decoded on use or kept, and the code that multiplies them.
//
// The ISA's dot_tile file makes the integer products; gemm_slab.inl.h scales them and adds them up.
//
// Types as stored, beside the type that held them before, on one core of an AMD EPYC (Zen 5),
// weights in cache, G multiply-adds a second with 1, 4 and 64 tokens (tests/bench/kernel_speed.cc):
//                          bytes a weight  AVX-512        AVX-VNNI       AVX2
//   MXFP4                  0.53            160 299 378    101 192 197     86 137 168
//     as Q5_0              0.69             95 227 365     79 174 194     68 125 166
//   IQ4_NL                 0.56            169 290 396    110 202 201     61  87 104
//   IQ4_XS                 0.53            134 267 376     97 178 194     57  83 102
//     both as Q8_0         1.06            114 282 381    103 208 205     76  97 104
//   Q2_K                   0.33            142 251 284     74 118 143     68 113 138
//     minimums as floats                   131 215 260     75 119 133     69 103 117
//   Q3_K                   0.43            124 225 343     80 129 173     77 122 157
//     third bits apart                      93 184 326     41 113 163     54  99 149
//     both as Q6_K         0.82            104 209 341     68 122 172     64 111 156
//
// Included by gemm_slab.inl.h; dot_tile files come behind the types.
namespace thermocline::kernels {
namespace {

constexpr int kBlockGroups = 8;  // of a block of 256 columns

// Scales of 32 columns of one panel.
struct GroupScales {
  I32x16 factor[2];  // pairs of words, where the integer product takes scales
  F32x16 scale[2];   // of the group, or of its halves
  union {
    F32x16 min;
    I32x16 min_words[2];  // of halves, as TwiceInWords has them
  };
};

// 32 columns of one panel, decoded: eight quads (kernels/types.h).
struct Group : GroupScales {
  U8x64 levels[8];
  U8x64 magnitudes[kSlabMagnitudes ? 8 : 1];

  // These load whole vectors: g++ 12 would copy a struct in pieces, and a load of the copy would
  // wait for them.
  template <int quad>
  U8x64 level() const {
    return LoadU8(levels + quad);
  }
  template <int quad>
  U8x64 magnitude() const {
    return LoadU8(magnitudes + quad);
  }
};

// The activations of a tile of tokens, from a slab's first column on.
struct TokenRows {
  const std::int8_t* q;
  const float *scale, *scaled_sum;
  const std::int32_t *sum, *half_sum, *pair_sum;
  std::ptrdiff_t cols, blocks;  // from token to token
};

[[gnu::always_inline]] inline TokenRows TokenRowsAt(const Activations& a, int token, int col) {
  const std::ptrdiff_t at = StartOf(token, a.cols) + col;
  const std::ptrdiff_t block = at / kActivationBlock;
  return {.q = a.q + at,
          .scale = a.scale + block,
          .scaled_sum = a.scaled_sum + block,
          .sum = a.sum + block,
          .half_sum = a.half_sum + block,
          .pair_sum = a.pair_sum + 2 * block,
          .cols = a.cols,
          .blocks = a.cols / kActivationBlock};
}

// The i-th quad to be multiplied: quads that share bytes are consecutive.
constexpr int QuadOrder(DType type, int i) {
  return type == DType::kQ8_0 || HasHalves(type) || HasTwoBits(type) ? i : i % 2 * 4 + i / 2;
}

// Levels of nibbles; those of wide types as the dot product takes them.
template <DType type>
constexpr CodebookLevels kLevels = LevelsOf(type,
                                            IsWide(type) ? kWideOffset : LayoutOf(type).offset);

// A quad of a group as it lies at `levels`, as bytes.
template <DType type, int quad>
[[gnu::always_inline]] inline U8x64 RawLevel(const std::uint8_t* levels) {
  if constexpr (type == DType::kQ8_0) {
    return LoadU8(levels + kQuadBytes * quad);
  } else if constexpr (type == DType::kQ6_K) {
    const std::uint8_t* half = levels + quad / 4 * 3 * kQuadBytes;
    const U8x64 packed = LoadU8(half + quad % 4 / 2 * kQuadBytes);
    const U8x64 nibbles = quad % 2 == 0 ? LowNibbles(packed) : HighNibbles(packed);
    return WithTwoBits<quad % 4>(nibbles, LoadU8(half + 2 * kQuadBytes));
  } else if constexpr (HasTwoBits(type)) {
    return Bits<quad % 4 * 2, 2>(LoadU8(levels + quad / 4 * kQuadBytes));
  } else if constexpr (type == DType::kQ3_K && quad < 6) {
    return Bits<quad % 2 * 3, 3>(LoadU8(levels + quad / 2 * kQuadBytes));
  } else if constexpr (type == DType::kQ3_K) {
    const U8x64 low = Bits<6, 2>(LoadU8(levels + (quad - 6) * kQuadBytes));
    return WithBit<quad, 2>(low, LoadU8(levels + 2 * kQuadBytes));
  } else {
    constexpr int kFifthBits = LayoutOf(type).fifth_bits;
    const U8x64 packed = LoadU8(levels + kQuadBytes * (kFifthBits + quad % 4));
    const U8x64 nibbles = quad < 4 ? LowNibbles(packed) : HighNibbles(packed);
    if constexpr (HasCodebook(type)) return LookUp(kLevels<type>.of, nibbles);
    if constexpr (kFifthBits == 0) return nibbles;
    return WithBit<quad, 4>(nibbles, LoadU8(levels));
  }
}

}  // namespace
}  // namespace thermocline::kernels

#if defined(THERMOCLINE_VNNI_256) && !THERMOCLINE_VNNI_256
#include "kernels/cpu/dot_tile_avx2.inl.h"
#else
#include "kernels/cpu/dot_tile.inl.h"
#endif

namespace thermocline::kernels {
namespace {

template <DType type>
constexpr std::ptrdiff_t BlockBytes() {
  return PanelBytes(type, Traits(type).block_size);
}

// The block of column `col`.
template <DType type>
[[gnu::always_inline]] inline const std::uint8_t* BlockAt(const std::uint8_t* panel, int col) {
  return panel + col / Traits(type).block_size * BlockBytes<type>();
}

// The numbers that all groups of a block share.
struct BlockHeader {
  I32x16 numbers[16];  // scales and minimums of the sub-blocks, where they are of six bits
  F32x16 d, dmin;      // blocks of 256
};

template <DType type>
[[gnu::always_inline]] inline void DecodeHeader(const std::uint8_t* block, BlockHeader& header) {
  if constexpr (IsBlockOf256(type)) {
    header.d = LoadF16(block);
    if constexpr (LayoutOf(type).min >= 0) {
      header.dmin = SubF(ZeroF(), LoadF16(block + LayoutOf(type).min));
    }
    if constexpr (type == DType::kQ4_K || type == DType::kQ5_K) {
      DecodeSixBitNumbers(block + 64, header.numbers);
    } else if constexpr (type == DType::kQ3_K) {
      DecodeSixBitNumbers(block + 32, header.numbers);
      for (I32x16& number : header.numbers) number = SubI(number, Set1I(32));
    } else if constexpr (type == DType::kIQ4_XS) {
      DecodeIq4XsScales(block + 32, header.numbers);
    }
  }
}

// A group that is decoded while it is used.
template <DType type>
struct PackedGroup : GroupScales {
  const std::uint8_t* levels;

  template <int quad>
  U8x64 level() const {
    return LevelForDots<type>(RawLevel<type, quad>(levels));
  }
  template <int quad>
  U8x64 magnitude() const {
    return Magnitudes(level<quad>());
  }
};

template <DType type>
[[gnu::always_inline]] inline const std::uint8_t* LevelsAt(const std::uint8_t* block, int g) {
  return block + LayoutOf(type).header + g * LayoutOf(type).group_bytes;
}

// The scales of group g of a block.
template <DType type>
[[gnu::always_inline]] inline void DecodeScales(const std::uint8_t* block,
                                                const BlockHeader& header, int g,
                                                GroupScales& scales) {
  if constexpr (type == DType::kQ6_K) {
    for (int half = 0; half < 2; ++half)
      SetNumber<type>(LoadI8(block + 32 + (2 * g + half) * kPanelRows), half, scales);
  } else if constexpr (type == DType::kQ3_K) {
    for (int half = 0; half < 2; ++half)
      SetNumber<type>(header.numbers[2 * g + half], half, scales);
  } else if constexpr (type == DType::kQ2_K) {
    const I32x16 word = ShiftRightI(LoadI32(block + 64 + g / 2 * kQuadBytes), g % 2 * 16);
    for (int half = 0; half < 2; ++half) {
      SetNumber<type>(AndI(ShiftRightI(word, 8 * half), 15), half, scales);
      scales.min_words[half] = TwiceInWords(AndI(ShiftRightI(word, 8 * half + 4), 15));
    }
  } else if constexpr (type == DType::kTQ2_0) {
    SetNumber<type>(Set1I(1), 0, scales);
  } else if constexpr (IsBlockOf256(type)) {
    SetNumber<type>(header.numbers[g], 0, scales);
    if constexpr (LayoutOf(type).min >= 0) scales.min = ToF32(header.numbers[8 + g]);
  } else if constexpr (type == DType::kMXFP4) {
    scales.scale[0] = LoadE8M0(block);
  } else {
    scales.scale[0] = LoadF16(block);
    if constexpr (LayoutOf(type).min >= 0) scales.min = LoadF16(block + LayoutOf(type).min);
  }
}

// Group g of a block.
template <DType type>
[[gnu::always_inline]] inline void Decode(const std::uint8_t* block, const BlockHeader& header,
                                          int g, Group& group) {
  DecodeScales<type>(block, header, g, group);
  const std::uint8_t* levels = LevelsAt<type>(block, g);
  Unroll<0, 8>([&]<int i>() __attribute__((always_inline)) {
    constexpr int kQuad = QuadOrder(type, i);
    group.levels[kQuad] = LevelForDots<type>(RawLevel<type, kQuad>(levels));
    if constexpr (kSlabMagnitudes && IsWide(type))
      group.magnitudes[kQuad] = Magnitudes(group.levels[kQuad]);
  });
}

}  // namespace
}  // namespace thermocline::kernels
