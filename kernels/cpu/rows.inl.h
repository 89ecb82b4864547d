// GemmRows of kernels/rows.h: sixteen rows from anywhere become a panel in the cache, and
// gemm.inl.h multiplies it, so every type and every ISA has it and the bits are those of gemm.h.
// For one token and the commonest types the dot products are exact integers anyway, so they are
// taken row by row; only they and the scales change places.
//
// Measured on one Zen 4 core, Q4_0, one token, D 4096, rows in the cache, GB/s:
//   the panel whole, then multiplied                             20
//   a panel of 256 columns at a time, in the first-level cache   25
//   rows as they lie, dot products transposed                    31 (Q8_0 48, Q4_K 31)
// From memory, every tenth row: 22; with the first rows of a list asked for ahead 27.
//
// Included after gemm.inl.h by one translation unit for each ISA.
#include "kernels/cpu/vector128.h"
#include "kernels/layout/row_layout.h"

namespace thermocline::kernels {
namespace {

// The rows of one panel; lanes without a row repeat the last one.
struct RowSet {
  const std::uint8_t* row[kPanelRows];
};

inline RowSet RowsAt(const GemmRowsParams& p, int at) {
  RowSet set;
  for (int lane = 0; lane < kPanelRows; ++lane) {
    const int k = at + lane < p.count ? at + lane : p.count - 1;
    set.row[lane] = p.weights.row(p.ids != nullptr ? p.ids[k] : p.first + k);
  }
  return set;
}

inline void TransposeWords(const RowSet& rows, std::ptrdiff_t offset, int words,
                           std::uint8_t* quads) {
  for (int four = 0; four < words / 4; ++four)
    TransposeQuads(rows.row, offset + four * 16, quads + four * 4 * kQuadBytes);
  const int done = words / 4 * 4;
  for (int w = 0; w < words % 4; ++w) {
    for (int lane = 0; lane < kPanelRows; ++lane)
      __builtin_memcpy(quads + (done + w) * kQuadBytes + lane * 4,
                       rows.row[lane] + offset + (done + w) * 4, 4);
  }
}

// A quad of pairs of halves to sixteen low halves at `low` and sixteen high ones at `high`, one of
// which may be the quad itself.
inline void SplitQuad(const std::uint8_t* quad, std::uint8_t* low, std::uint8_t* high) {
  V128 first[2], second[2];
  SplitHalves(Load128(quad), Load128(quad + 16), first[0], second[0]);
  SplitHalves(Load128(quad + 32), Load128(quad + 48), first[1], second[1]);
  for (int i = 0; i < 2; ++i) {
    Store128(low + 16 * i, first[i]);
    Store128(high + 16 * i, second[i]);
  }
}

// A number of `bytes` bytes of each row from `offset` on.
inline void GatherNumber(const RowSet& rows, std::ptrdiff_t offset, int bytes,
                         std::uint8_t* panel) {
  for (int lane = 0; lane < kPanelRows; ++lane)
    __builtin_memcpy(panel + bytes * lane, rows.row[lane] + offset, bytes);
}

// Number `half` (d, or m) of `blocks` blocks of a group of a type with blocks of 32.
inline void GatherScales(const RowSet& rows, std::ptrdiff_t offset, int blocks,
                         std::ptrdiff_t block_bytes, std::uint8_t* panel) {
  if (blocks == 8) {
    alignas(64) std::uint8_t pairs[4 * kQuadBytes];
    TransposeQuads(rows.row, offset, pairs);
    for (int i = 0; i < 4; ++i)
      SplitQuad(pairs + i * kQuadBytes, panel + 2 * i * block_bytes,
                panel + (2 * i + 1) * block_bytes);
    return;
  }
  for (int b = 0; b < blocks; ++b) GatherNumber(rows, offset + 2 * b, 2, panel + b * block_bytes);
}

// One group of columns.
template <DType type>
inline void GatherGroup(const RowSet& rows, std::ptrdiff_t offset, int blocks,
                        std::uint8_t* panel) {
  constexpr RowLayout kLayout = RowLayoutOf(type);
  constexpr std::ptrdiff_t kBlockBytes = PanelBytes(type, kLayout.block);
  constexpr int kNumbers = kLayout.numbers, kBytes = kLayout.number_bytes;
  if constexpr (kLayout.group_blocks == 1 && kNumbers == 2) {  // they are the first word
    TransposeWords(rows, offset, kLayout.words + 1, panel);
    SplitQuad(panel, panel, panel + 32);
    return;
  }
  for (int number = 0; number < kNumbers; ++number, offset += kBytes * blocks) {
    if constexpr (kBytes == 2) {
      GatherScales(rows, offset, blocks, kBlockBytes, panel + number * 32);
    } else {
      for (int b = 0; b < blocks; ++b)
        GatherNumber(rows, offset + b, kBytes, panel + b * kBlockBytes);
    }
  }
  for (int b = 0; b < blocks; ++b, offset += 4 * kLayout.words)
    TransposeWords(rows, offset, kLayout.words, panel + b * kBlockBytes + kLayout.panel_header());
}

inline void GatherQ6K(const RowSet& rows, int cols, std::uint8_t* panel) {
  std::ptrdiff_t offset = 0;
  for (int b = 0; b < cols / 256; ++b, panel += PanelBytes(DType::kQ6_K, 256), offset += 210) {
    TransposeWords(rows, offset, kQ6KWords, panel + 288);
    for (int lane = 0; lane < kPanelRows; ++lane) {
      const std::uint8_t* scales = rows.row[lane] + offset + kQ6KWords * 4;
      for (int sub = 0; sub < 16; ++sub) panel[32 + sub * kPanelRows + lane] = scales[sub];
      __builtin_memcpy(panel + 2 * lane, scales + 16, 2);
    }
  }
}

// Elements of `bytes` bytes.
inline void GatherFloats(const RowSet& rows, int cols, int bytes, std::uint8_t* panel) {
  const int words = cols * bytes / 4;  // cols is below 2^20
  if (bytes == 4) return TransposeWords(rows, 0, words, panel);
  for (int four = 0; four < words / 4; ++four) {
    std::uint8_t* quads = panel + four * 4 * kQuadBytes;
    TransposeQuads(rows.row, four * 16, quads);
    for (int i = 0; i < 4; ++i)
      SplitQuad(quads + i * kQuadBytes, quads + i * kQuadBytes, quads + i * kQuadBytes + 32);
  }
  for (int c = words / 4 * 8; c < cols; ++c) {
    for (int lane = 0; lane < kPanelRows; ++lane)
      __builtin_memcpy(panel + c * 32 + 2 * lane, rows.row[lane] + 2 * c, 2);
  }
}

// `next`: rows to prefetch meanwhile, or null.
template <DType type>
void GatherGroups(const RowSet& rows, const RowSet* next, int cols, std::uint8_t* panel) {
  constexpr std::ptrdiff_t kBytes = RowLayoutOf(type).group_blocks * Traits(type).block_bytes;
  ForRowGroups(type, cols, [&](const RowGroup& group) {
    if (next != nullptr) {
      for (const std::uint8_t* row : next->row) {
        for (std::ptrdiff_t at = 0; at < kBytes; at += 64) Prefetch(row + group.row_offset + at);
      }
    }
    GatherGroup<type>(rows, group.row_offset, group.blocks, panel + group.panel_offset);
  });
}

void GatherRows(DType type, const RowSet& rows, const RowSet* next, int cols, std::uint8_t* panel) {
  ForDType(type, [&](auto constant) {
    if constexpr (!Traits(constant).quantized) {
      GatherFloats(rows, cols, Traits(constant).block_bytes, panel);
    } else if constexpr (constant == DType::kQ6_K) {
      GatherQ6K(rows, cols, panel);
    } else {
      GatherGroups<constant>(rows, next, cols, panel);
    }
  });
}

// One token. Sixteen rows' dot products with 64 bytes of levels at a time: lane by lane for each
// row as it lies in memory, then sums of four lanes for four rows at once, then quarters change
// places, so that a vector holds one block's dot products of the sixteen rows. The levels
// themselves are never transposed.
template <DType type>
struct RowTraits {
  static constexpr bool kBytes = type == DType::kQ8_0;
  static constexpr bool kIsK = type == DType::kQ4_K;
  static constexpr RowLayout kLayout = RowLayoutOf(type);
  static constexpr int kHeader = kIsK ? 16 : 16 * kLayout.numbers;  // bytes of a group's scales
  static constexpr std::ptrdiff_t kGroupBytes = RowBytes(type, 256);
};

// The inputs of a token in the order in which 64 bytes of levels meet them: of nibbles first the
// low ones' columns of four blocks, then the high ones'. `out`: [cols].
template <DType type>
void OrderInputs(const std::int8_t* q, int cols, std::uint8_t* out) {
  if constexpr (RowTraits<type>::kBytes) {
    for (int c = 0; c < cols; c += 16) Store128(out + c, Load128(q + c));
  } else {
    for (int c = 0; c < cols; c += 128) {
      for (int block = 0; block < 4; ++block) {
        Store128(out + c + 16 * block, Load128(q + c + 32 * block));
        Store128(out + c + 64 + 16 * block, Load128(q + c + 32 * block + 16));
      }
    }
  }
}

// Dot products of sixteen rows with 64 bytes of levels at `offset`: of quarter i in dots[i].
template <DType type>
inline void DotRows(const RowSet& rows, std::ptrdiff_t offset, const std::uint8_t* inputs,
                    I32x16 (&dots)[4]) {
  const U8x64 first = LoadU8(inputs);
  const U8x64 second = RowTraits<type>::kBytes ? first : LoadU8(inputs + 64);
  for (int four = 0; four < 4; ++four) {
    I32x16 sums[4];
    for (int r = 0; r < 4; ++r) {
      const U8x64 levels = LoadU8(rows.row[4 * four + r] + offset);
      if constexpr (RowTraits<type>::kBytes) {
        sums[r] = DotBytesWide(ZeroI(), levels, first);
      } else {
        sums[r] = DotNibbles(LowNibbles(levels), first, HighNibbles(levels), second);
      }
    }
    dots[four] = SumQuarters(sums[0], sums[1], sums[2], sums[3]);
  }
  TransposeQuarters(dots);
}

// Dot products of a group of 256 columns: of block (K types: sub-block) b in dots[b].
template <DType type>
inline void DotGroup(const RowSet& rows, std::ptrdiff_t levels, const std::uint8_t* inputs,
                     I32x16 (&dots)[8]) {
  using Row = RowTraits<type>;
  constexpr int kLoads = Row::kBytes ? 4 : 2;
  for (int load = 0; load < kLoads; ++load) {
    I32x16 quarters[4];
    DotRows<type>(rows, levels + 64 * load, inputs + (Row::kBytes ? 64 : 128) * load, quarters);
    for (int i = 0; i < 4; ++i) {
      if constexpr (!Row::kBytes) {
        dots[4 * load + i] = quarters[i];
      } else if (i % 2 == 0) {
        dots[2 * load + i / 2] = AddI(quarters[i], quarters[i + 1]);
      }
    }
  }
}

// As gemm.h says, for one token and one group of eight blocks.
template <DType type>
inline void AddBlocks(const RowSet& rows, std::ptrdiff_t offset, const I32x16 (&dots)[8],
                      const TokenRows& x, int block, F32x16& acc) {
  using Row = RowTraits<type>;
  constexpr int kOffset = Row::kBytes ? kWideOffset : LayoutOf(type).offset;
  alignas(64) std::uint8_t scales[2][8 * 32];
  for (int half = 0; half < Row::kLayout.numbers; ++half)
    GatherScales(rows, offset + 16 * half, 8, 32, scales[half]);
  for (int b = 0; b < 8; ++b) {
    const int at = block + b;
    const I32x16 dot = SubI(dots[b], Set1I(kOffset * x.sum[at]));
    acc = Fma(MulF(LoadF16(scales[0] + 32 * b), Set1(x.scale[at])), ToF32(dot), acc);
    if constexpr (Row::kLayout.numbers == 2)
      acc = Fma(LoadF16(scales[1] + 32 * b), Set1(x.scaled_sum[at]), acc);
  }
}

// As gemm.h says, for one token and one block of Q4_K.
inline void AddSubBlocks(const RowSet& rows, std::ptrdiff_t offset, const I32x16 (&dots)[8],
                         const TokenRows& x, int block, F32x16& acc) {
  alignas(64) std::uint8_t header[4 * kQuadBytes];
  TransposeQuads(rows.row, offset, header);
  SplitQuad(header, header, header + 32);
  F32x16 numbers[16], scaled = ZeroF(), mins = ZeroF();
  DecodeSixBitNumbers(header + kQuadBytes, numbers);
  for (int sub = 0; sub < 8; ++sub) {
    const int at = block + sub;
    scaled = Fma(MulF(ToF32(dots[sub]), numbers[sub]), Set1(x.scale[at]), scaled);
    mins = Fma(numbers[8 + sub], Set1(x.scaled_sum[at]), mins);
  }
  acc = Fma(LoadF16(header), scaled, acc);
  acc = Fma(SubF(ZeroF(), LoadF16(header + 32)), mins, acc);
}

// Requires: cols a multiple of 256; OrderInputs in `inputs`.
template <DType type>
void MultiplyRowSet(const GemmRowsParams& p, const std::uint8_t* inputs, const RowSet& rows,
                    const RowSet* next, int count, float* out) {
  using Row = RowTraits<type>;
  const TokenRows x = TokenRowsAt(p.activations, 0, 0);
  F32x16 acc = ZeroF();
  std::ptrdiff_t offset = 0;
  for (int c = 0; c < p.weights.cols; c += 256, offset += Row::kGroupBytes) {
    if (next != nullptr) {
      for (const std::uint8_t* row : next->row) {
        for (std::ptrdiff_t at = 0; at < Row::kGroupBytes; at += 64) Prefetch(row + offset + at);
      }
    }
    I32x16 dots[8];
    DotGroup<type>(rows, offset + Row::kHeader, inputs + c, dots);
    if constexpr (Row::kIsK) {
      AddSubBlocks(rows, offset, dots, x, c / 32, acc);
    } else {
      AddBlocks<type>(rows, offset, dots, x, c / 32, acc);
    }
  }
  StorePartial(out, count, acc);
}

// One token; types and widths that MultiplyRowSet takes.
template <DType type>
void MultiplyOneToken(const GemmRowsParams& p) {
  OrderInputs<type>(p.activations.q, p.weights.cols, p.scratch);
  RowSet rows = RowsAt(p, 0);
  for (int at = 0; at < p.count; at += kPanelRows) {
    const int count = p.count - at < kPanelRows ? p.count - at : kPanelRows;
    const bool more = at + kPanelRows < p.count;
    const RowSet next = more ? RowsAt(p, at + kPanelRows) : rows;
    MultiplyRowSet<type>(p, p.scratch, rows, more ? &next : nullptr, count, p.out + at);
    rows = next;
  }
}

// Returns true if it multiplied.
bool MultiplyOneToken(const GemmRowsParams& p) {
  if (p.tokens > 1 || p.weights.cols % 256 != 0) return false;
  switch (p.weights.type) {
    case DType::kQ8_0:
      return MultiplyOneToken<DType::kQ8_0>(p), true;
    case DType::kQ4_0:
      return MultiplyOneToken<DType::kQ4_0>(p), true;
    case DType::kQ4_1:
      return MultiplyOneToken<DType::kQ4_1>(p), true;
    case DType::kQ4_K:
      return MultiplyOneToken<DType::kQ4_K>(p), true;
    default:
      return false;
  }
}

// The first rows of a list come from memory and no other work can hide that, so they are prefetched
// in the order of their use.
void PrefetchRows(const RowSet& rows, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64) {
    for (const std::uint8_t* row : rows.row) Prefetch(row + at);
  }
}

template <auto kGemm>
void GemmRows(const GemmRowsParams& p) {
  if (p.count == 0) return;
  if (p.ids != nullptr) PrefetchRows(RowsAt(p, 0), RowBytes(p.weights.type, p.weights.cols));
  if (MultiplyOneToken(p)) return;
  constexpr int kRows = kRowPanels * kPanelRows;
  RowSet rows = RowsAt(p, 0);
  for (int at = 0; at < p.count; at += kRows) {
    const int count = p.count - at < kRows ? p.count - at : kRows;
    for (int row = 0; row < count; row += kPanelRows) {
      const bool more = at + row + kPanelRows < p.count;
      const RowSet next = more ? RowsAt(p, at + row + kPanelRows) : rows;
      GatherRows(p.weights.type, rows, more && p.ids != nullptr ? &next : nullptr, p.weights.cols,
                 p.scratch + row / kPanelRows * PanelBytes(p.weights.type, p.weights.cols));
      rows = next;
    }
    kGemm({.weights = {p.weights.type, count, p.weights.cols, p.scratch},
           .activations = p.activations,
           .tokens = p.tokens,
           .out = p.out + at,
           .out_stride = p.out_stride,
           .panel_begin = 0,
           .panel_end = NumPanels(count),
           .prefetch_bytes = 0});  // the panels are in the cache
  }
}

}  // namespace
}  // namespace thermocline::kernels
