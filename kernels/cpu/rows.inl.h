// GemmRows of kernels/rows.h: sixteen rows from anywhere become a panel in the cache, and
// gemm.inl.h multiplies it, so every type and every ISA has it and the bits are those of gemm.h.
//
// Included after gemm.inl.h by one translation unit for each ISA.
#include "kernels/cpu/vector128.h"
#include "kernels/reference/row_layout.h"

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
  for (int b = 0; b < blocks; ++b) {
    for (int lane = 0; lane < kPanelRows; ++lane)
      __builtin_memcpy(panel + b * block_bytes + 2 * lane, rows.row[lane] + offset + 2 * b, 2);
  }
}

// One group of columns.
template <DType type>
inline void GatherGroup(const RowSet& rows, std::ptrdiff_t offset, int blocks,
                        std::uint8_t* panel) {
  constexpr RowLayout kLayout = RowLayoutOf(type);
  constexpr auto kBlockBytes = static_cast<std::ptrdiff_t>(PanelBytes(type, kLayout.block));
  if constexpr (kLayout.group_blocks == 1) {  // d and dmin are the first word
    TransposeWords(rows, offset, kLayout.words + 1, panel);
    SplitQuad(panel, panel, panel + 32);
  } else {
    for (int half = 0; half < kLayout.halves; ++half, offset += 2 * blocks)
      GatherScales(rows, offset, blocks, kBlockBytes, panel + half * 32);
    for (int b = 0; b < blocks; ++b, offset += 4 * kLayout.words)
      TransposeWords(rows, offset, kLayout.words, panel + b * kBlockBytes + kLayout.halves * 32);
  }
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

template <DType type>
void GatherGroups(const RowSet& rows, int cols, std::uint8_t* panel) {
  ForRowGroups(type, cols, [&](const RowGroup& group) {
    GatherGroup<type>(rows, group.row_offset, group.blocks, panel + group.panel_offset);
  });
}

void GatherRows(DType type, const RowSet& rows, int cols, std::uint8_t* panel) {
  switch (type) {
    case DType::kQ8_0:
      return GatherGroups<DType::kQ8_0>(rows, cols, panel);
    case DType::kQ4_0:
      return GatherGroups<DType::kQ4_0>(rows, cols, panel);
    case DType::kQ4_1:
      return GatherGroups<DType::kQ4_1>(rows, cols, panel);
    case DType::kQ5_0:
      return GatherGroups<DType::kQ5_0>(rows, cols, panel);
    case DType::kQ5_1:
      return GatherGroups<DType::kQ5_1>(rows, cols, panel);
    case DType::kQ4_K:
      return GatherGroups<DType::kQ4_K>(rows, cols, panel);
    case DType::kQ5_K:
      return GatherGroups<DType::kQ5_K>(rows, cols, panel);
    case DType::kQ6_K:
      return GatherQ6K(rows, cols, panel);
    default:
      return GatherFloats(rows, cols, Traits(type).block_bytes, panel);
  }
}

// One token, a quantised type of which whole groups are computed: a group of columns becomes a
// piece of a panel in the first-level cache and is multiplied there.
template <DType type>
void MultiplyRowSet(const GemmRowsParams& p, const RowSet& rows, const RowSet* next, int count,
                    float* out) {
  constexpr RowLayout kLayout = RowLayoutOf(type);
  alignas(64) std::uint8_t panel[PanelBytes(type, kLayout.block * kLayout.group_blocks)];
  Tile<1> tile = MakeTile<1>(p.activations, 0);
  F32x16 acc[1] = {ZeroF()};
  ForRowGroups(type, p.weights.cols, [&](const RowGroup& group) {
    GatherGroup<type>(rows, group.row_offset, group.blocks, panel);
    const int columns = group.blocks * kLayout.block;
    const auto bytes = static_cast<int>(RowBytes(type, columns));
    if (next != nullptr) {
      for (const std::uint8_t* row : next->row) {
        for (int at = 0; at < bytes; at += 64) Prefetch(row + group.row_offset + at);
      }
    }
    MultiplyPanel<1>(type, panel, 0, columns, tile, acc);
    const int blocks = columns / kActivationBlock;
    tile.q[0] += columns;
    tile.scale[0] += blocks;
    tile.scaled_sum[0] += blocks;
    tile.sum[0] += blocks;
    tile.half_sum[0] += blocks;
  });
  StorePartial(out, count, acc[0]);
}

// Whether MultiplyRowSet took the type.
bool MultiplyOne(const GemmRowsParams& p, const RowSet& rows, const RowSet* next, int count,
                 float* out) {
  switch (p.weights.type) {
    case DType::kQ8_0:
      return MultiplyRowSet<DType::kQ8_0>(p, rows, next, count, out), true;
    case DType::kQ4_0:
      return MultiplyRowSet<DType::kQ4_0>(p, rows, next, count, out), true;
    case DType::kQ4_1:
      return MultiplyRowSet<DType::kQ4_1>(p, rows, next, count, out), true;
    case DType::kQ4_K:
      return MultiplyRowSet<DType::kQ4_K>(p, rows, next, count, out), true;
    default:
      return false;
  }
}

// The first rows of a list come from memory while nothing else is to be done: asked for in the
// order of their use.
void PrefetchRows(const RowSet& rows, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64) {
    for (const std::uint8_t* row : rows.row) Prefetch(row + at);
  }
}

template <auto kGemm>
void GemmRows(const GemmRowsParams& p) {
  RowSet rows = RowsAt(p, 0);
  if (p.ids != nullptr) PrefetchRows(rows, RowBytes(p.weights.type, p.weights.cols));
  for (int at = 0; at < p.count; at += kPanelRows) {
    const int count = p.count - at < kPanelRows ? p.count - at : kPanelRows;
    const bool more = at + kPanelRows < p.count;
    const RowSet next = more ? RowsAt(p, at + kPanelRows) : rows;
    if (p.tokens > 1 || !MultiplyOne(p, rows, more ? &next : nullptr, count, p.out + at)) {
      GatherRows(p.weights.type, rows, p.weights.cols, p.scratch);
      kGemm({.weights = {p.weights.type, count, p.weights.cols, p.scratch},
             .activations = p.activations,
             .tokens = p.tokens,
             .out = p.out + at,
             .out_stride = p.out_stride,
             .panel_begin = 0,
             .panel_end = 1});
    }
    rows = next;
  }
}

}  // namespace
}  // namespace thermocline::kernels
