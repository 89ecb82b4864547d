// gemm.h for quantised weights, on decoded columns of panels.
//
// A group is 32 columns of a panel as bytes. For a few tokens each group is decoded into registers
// and used at once. For more, a slab of 512 columns of kSlabPanels panels is decoded into the
// first-level cache and multiplied by all tokens of the call, four at a time: they share a load of
// weights, and the panels a broadcast of activations.
//
// The ISA's dot_tile file makes the integer products; here they are scaled and added up in the
// order that gemm.h states, whatever the tile, so the bits are those of one token alone.
//
// Included by gemm.inl.h.
#include "kernels/cpu/vector128.h"

namespace thermocline::kernels {
namespace {

constexpr int kSlabCols = 512;
constexpr int kSlabGroups = kSlabCols / kActivationBlock;
constexpr int kBlockGroups = 8;   // of a block of 256 columns
constexpr int kSlabTile = 4;      // tokens
constexpr int kPassTokens = 128;  // that share decoded weights

// Scales of 32 columns of one panel.
struct GroupScales {
  I32x16 factor[2];  // pairs of words, where the integer product takes scales
  F32x16 scale[2];   // of the group, Q6_K of its halves
  F32x16 min;
};

// 32 columns of one panel, decoded: eight quads (kernels/types.h).
struct Group : GroupScales {
  U8x64 levels[8];
  U8x64 magnitudes[kSlabMagnitudes ? 8 : 1];

  // By loads of whole vectors: g++ 12 copies a struct in pieces, and a load of the copy waits.
  template <int quad>
  U8x64 level() const {
    return LoadU8(levels + quad);
  }
  template <int quad>
  U8x64 magnitude() const {
    return LoadU8(magnitudes + quad);
  }
};

// body.operator()<i>() for i = first, ..., first + count - 1.
template <int first, int count, typename Body>
[[gnu::always_inline]] inline void Unroll(const Body& body) {
  if constexpr (count > 0) {
    body.template operator()<first>();
    Unroll<first + 1, count - 1>(body);
  }
}

// The activations of a tile of tokens, from a slab's first column on.
struct TokenRows {
  const std::int8_t* q;
  const float *scale, *scaled_sum;
  const std::int32_t *sum, *half_sum, *pair_sum;
  std::ptrdiff_t cols, blocks;  // from token to token
};

inline TokenRows TokenRowsAt(const Activations& a, int token, int col) {
  const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(token) * a.cols + col;
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

constexpr bool IsBlockOf256(DType type) { return Traits(type).block_size == 256; }

// The i-th quad to be multiplied: quads that lie in the same bytes one behind the other.
constexpr int QuadOrder(DType type, int i) {
  return type == DType::kQ8_0 || type == DType::kQ6_K ? i : i % 2 * 4 + i / 2;
}

// A quad of a group as it lies at `levels`, as bytes.
template <DType type, int quad>
inline U8x64 RawLevel(const std::uint8_t* levels) {
  if constexpr (type == DType::kQ8_0) {
    return LoadU8(levels + kQuadBytes * quad);
  } else if constexpr (type == DType::kQ6_K) {
    const std::uint8_t* half = levels + quad / 4 * 3 * kQuadBytes;
    const U8x64 packed = LoadU8(half + quad % 4 / 2 * kQuadBytes);
    const U8x64 nibbles = quad % 2 == 0 ? LowNibbles(packed) : HighNibbles(packed);
    return WithTwoBits<quad % 4>(nibbles, LoadU8(half + 2 * kQuadBytes));
  } else {
    constexpr int kFifthBits = LayoutOf(type).fifth_bits;
    const U8x64 packed = LoadU8(levels + kQuadBytes * (kFifthBits + quad % 4));
    const U8x64 nibbles = quad < 4 ? LowNibbles(packed) : HighNibbles(packed);
    if constexpr (kFifthBits == 0) return nibbles;
    return WithFifthBit<quad>(nibbles, LoadU8(levels));
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
  return static_cast<std::ptrdiff_t>(PanelBytes(type, Traits(type).block_size));
}

// The block of column `col`.
template <DType type>
inline const std::uint8_t* BlockAt(const std::uint8_t* panel, int col) {
  return panel + col / Traits(type).block_size * BlockBytes<type>();
}

// What all groups of a block share.
struct BlockHeader {
  I32x16 numbers[16];  // Q4_K, Q5_K: scales and minimums of the sub-blocks
  F32x16 d, dmin;      // blocks of 256
};

template <DType type>
inline void DecodeHeader(const std::uint8_t* block, BlockHeader& header) {
  if constexpr (IsBlockOf256(type)) {
    header.d = LoadF16(block);
    if constexpr (LayoutOf(type).min >= 0) {
      header.dmin = SubF(ZeroF(), LoadF16(block + LayoutOf(type).min));
      DecodeSixBitNumbers(block + 64, header.numbers);
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
inline const std::uint8_t* LevelsAt(const std::uint8_t* block, int g) {
  return block + LayoutOf(type).header + g * LayoutOf(type).group_bytes;
}

// The scales of group g of a block.
template <DType type>
inline void DecodeScales(const std::uint8_t* block, const BlockHeader& header, int g,
                         GroupScales& scales) {
  if constexpr (type == DType::kQ6_K) {
    for (int half = 0; half < 2; ++half)
      SetNumber<true>(LoadI8(block + 32 + (2 * g + half) * kPanelRows), half, scales);
  } else if constexpr (IsBlockOf256(type)) {
    SetNumber<false>(header.numbers[g], 0, scales);
    scales.min = ToF32(header.numbers[8 + g]);
  } else {
    scales.scale[0] = LoadF16(block);
    if constexpr (LayoutOf(type).min >= 0) scales.min = LoadF16(block + LayoutOf(type).min);
  }
}

// Group g of a block.
template <DType type>
inline void Decode(const std::uint8_t* block, const BlockHeader& header, int g, Group& group) {
  DecodeScales<type>(block, header, g, group);
  const std::uint8_t* levels = LevelsAt<type>(block, g);
  Unroll<0, 8>([&]<int i>() __attribute__((always_inline)) {
    constexpr int kQuad = QuadOrder(type, i);
    group.levels[kQuad] = LevelForDots<type>(RawLevel<type, kQuad>(levels));
    if constexpr (kSlabMagnitudes && type == DType::kQ8_0)
      group.magnitudes[kQuad] = Magnitudes(group.levels[kQuad]);
  });
}

// Sums of a tile of T tokens and P panels, as they grow.
template <int P, int T>
struct TileSums {
  F32x16 acc[P][T];
  F32x16 scaled[P][T], mins[P][T];  // of the current block of 256 columns

  void Begin() {
    for (int p = 0; p < P; ++p) {
      for (int t = 0; t < T; ++t) acc[p][t] = ZeroF();
    }
  }
  void BeginBlock() {
    for (int p = 0; p < P; ++p) {
      for (int t = 0; t < T; ++t) scaled[p][t] = mins[p][t] = ZeroF();
    }
  }
};

// Adds the products of group `at` of the tile's columns. Products of a dot product and a scale, and
// of two sub-blocks of Q6_K, are below 2^24: exact in f32.
template <DType type, int P, int T, typename SomeGroup>
[[gnu::always_inline]] inline void AddGroup(const SomeGroup* const (&group)[P], int at,
                                            const TokenRows& x, TileSums<P, T>& sums) {
  F32x16 value[P][T];
  GroupProducts<type, P, T>(group, at, x, value);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const F32x16 scale = Set1(x.scale[t * x.blocks + at]);
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      if constexpr (IsBlockOf256(type)) {
        sums.scaled[p][t] = Fma(value[p][t], scale, sums.scaled[p][t]);
      } else {
        sums.acc[p][t] = Fma(MulF(group[p]->scale[0], scale), value[p][t], sums.acc[p][t]);
      }
    }
    if constexpr (LayoutOf(type).min >= 0) {
      const F32x16 sum = Set1(x.scaled_sum[t * x.blocks + at]);
      auto& to = IsBlockOf256(type) ? sums.mins : sums.acc;
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) to[p][t] = Fma(group[p]->min, sum, to[p][t]);
    }
  }
}

// Ends a block of 256 columns.
template <DType type, int P, int T>
inline void EndBlock(const BlockHeader* const (&header)[P], TileSums<P, T>& sums) {
  for (int p = 0; p < P; ++p) {
    for (int t = 0; t < T; ++t) {
      sums.acc[p][t] = Fma(header[p]->d, sums.scaled[p][t], sums.acc[p][t]);
      if constexpr (LayoutOf(type).min >= 0)
        sums.acc[p][t] = Fma(header[p]->dmin, sums.mins[p][t], sums.acc[p][t]);
    }
  }
}

inline int RowsOfPanel(const GemmParams& p, int panel) {
  const int left = p.weights.rows - panel * kPanelRows;
  return left < kPanelRows ? left : kPanelRows;
}
inline float* OutputAt(const GemmParams& p, int panel, int token) {
  return p.out + static_cast<std::ptrdiff_t>(token) * p.out_stride + panel * kPanelRows;
}

template <int lines>
inline void PrefetchLines(const std::uint8_t* from) {
  Unroll<0, lines>([&]<int i>() __attribute__((always_inline)) { Prefetch(from + 64 * i); });
}

// A few tokens: T of them from `token` on and one panel, all columns.
template <DType type, int T>
void PanelTimesFew(const GemmParams& p, int panel, int token) {
  constexpr int kGroups = Traits(type).block_size / kActivationBlock;
  constexpr int kGroupLines = static_cast<int>((BlockBytes<type>() / kGroups + 63) / 64);
  const TokenRows x = TokenRowsAt(p.activations, token, 0);
  const std::uint8_t* block = p.weights.panel(panel);
  TileSums<1, T> sums;
  sums.Begin();
  for (int first = 0; first < p.weights.cols / kActivationBlock;
       first += kGroups, block += BlockBytes<type>()) {
    BlockHeader header;
    DecodeHeader<type>(block, header);
    if constexpr (kGroups > 1) sums.BeginBlock();
    for (int g = 0; g < kGroups; ++g) {
      PackedGroup<type> group;
      group.levels = LevelsAt<type>(block, g);
      if (p.prefetch_bytes > 0) PrefetchLines<kGroupLines>(group.levels + p.prefetch_bytes);
      DecodeScales<type>(block, header, g, group);
      AddGroup<type, 1, T, PackedGroup<type>>({&group}, first + g, x, sums);
    }
    if constexpr (kGroups > 1) EndBlock<type, 1, T>({&header}, sums);
  }
  for (int t = 0; t < T; ++t)
    StorePartial(OutputAt(p, panel, token + t), RowsOfPanel(p, panel), sums.acc[0][t]);
}

// Columns of one panel, decoded.
struct Slab {
  Group group[kSlabGroups];
  BlockHeader header[kSlabGroups / kBlockGroups];
};

// A slab's place: columns [col, col + 32 groups) of panels from `panel` on.
struct SlabPlace {
  int panel, col, groups;
};

template <DType type>
inline void DecodeSlab(const std::uint8_t* panel, const SlabPlace& place, Slab& slab) {
  constexpr int kGroups = Traits(type).block_size / kActivationBlock;
  const std::uint8_t* block = BlockAt<type>(panel, place.col);
  for (int first = 0; first < place.groups; first += kGroups, block += BlockBytes<type>()) {
    BlockHeader& header = slab.header[first / kBlockGroups];
    DecodeHeader<type>(block, header);
    for (int g = 0; g < kGroups; ++g) Decode<type>(block, header, g, slab.group[first + g]);
  }
}

// The sums of P panels' rows for the tokens of one pass, while the slabs go by. Apart from `out`,
// where a token's rows are far from the next one's: in few sets of the caches.
template <int P>
struct PassSums {
  alignas(64) float of[kPassTokens][P][kPanelRows];

  void Load(const GemmParams& p, int panel, int token, int tokens) {
    for (int t = 0; t < tokens; ++t) {
      for (int i = 0; i < P; ++i)
        Store(of[t][i], LoadPartial(OutputAt(p, panel + i, token + t), RowsOfPanel(p, panel + i)));
    }
  }
  void Save(const GemmParams& p, int panel, int token, int tokens) const {
    for (int t = 0; t < tokens; ++t) {
      for (int i = 0; i < P; ++i)
        StorePartial(OutputAt(p, panel + i, token + t), RowsOfPanel(p, panel + i),
                     LoadF32(of[t][i]));
    }
  }
};

// T tokens' columns, from the slab's first on, times a slab of P panels; `to` are their sums.
template <DType type, int P, int T>
void SlabTimesTile(const Slab (&slab)[P], const SlabPlace& place, const TokenRows& x,
                   float (*to)[P][kPanelRows]) {
  constexpr int kGroups = Traits(type).block_size / kActivationBlock;
  TileSums<P, T> sums;
  if (place.col == 0) {
    sums.Begin();
  } else {
    for (int t = 0; t < T; ++t) {
      for (int p = 0; p < P; ++p) sums.acc[p][t] = LoadF32(to[t][p]);
    }
  }
  for (int first = 0; first < place.groups; first += kGroups) {
    if constexpr (kGroups > 1) sums.BeginBlock();
    for (int g = first; g < first + kGroups; ++g) {
      const Group* group[P];
      for (int i = 0; i < P; ++i) group[i] = &slab[i].group[g];
      AddGroup<type, P, T, Group>(group, g, x, sums);
    }
    if constexpr (kGroups > 1) {
      const BlockHeader* header[P];
      for (int i = 0; i < P; ++i) header[i] = &slab[i].header[first / kBlockGroups];
      EndBlock<type, P, T>(header, sums);
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int p = 0; p < P; ++p) Store(to[t][p], sums.acc[p][t]);
  }
}

// Asks for what comes next while a tile of tokens is computed: the next tile's activations, and, a
// part with each tile, the next slab's weights, which are all needed at once when it is decoded.
template <DType type, int P>
class Ahead {
 public:
  Ahead(const GemmParams& p, const SlabPlace& next, int tiles) {
    for (int i = 0; i < P; ++i)
      begin_[i] = BlockAt<type>(p.weights.panel(next.panel + i), next.col);
    const std::ptrdiff_t bytes =
        BlockAt<type>(begin_[0], next.groups * kActivationBlock) - begin_[0];
    lines_ = static_cast<int>((bytes + 63) / 64);
    per_tile_ = (lines_ + tiles - 1) / tiles;
  }
  void AskForWeights() {
    const int end = at_ + per_tile_ < lines_ ? at_ + per_tile_ : lines_;
    for (; at_ < end; ++at_) {
      for (const std::uint8_t* panel : begin_) Prefetch(panel + 64 * at_);
    }
  }
  static void AskForTile(const TokenRows& x, int groups) {
    for (int t = 0; t < kSlabTile; ++t) {
      const std::int8_t* q = x.q + t * x.cols;
      for (int at = 0; at < groups * kActivationBlock; at += 64) PrefetchNear(q + at);
      PrefetchNear(x.scale + t * x.blocks);
      if constexpr (LayoutOf(type).min >= 0) PrefetchNear(x.scaled_sum + t * x.blocks);
      if constexpr (LayoutOf(type).offset != 0) {
        PrefetchNear(x.sum + t * x.blocks);
        PrefetchNear(x.pair_sum + 2 * t * x.blocks);
      }
    }
  }

 private:
  const std::uint8_t* begin_[P];
  int lines_, per_tile_, at_ = 0;
};

// Tokens of a pass times one slab.
template <DType type, int P>
void SlabTimesTokens(const GemmParams& p, const SlabPlace& place, const SlabPlace& next, int token,
                     int tokens, PassSums<P>& sums) {
  Slab slab[P];
  for (int i = 0; i < P; ++i) DecodeSlab<type>(p.weights.panel(place.panel + i), place, slab[i]);
  Ahead<type, P> ahead(p, next, (tokens + kSlabTile - 1) / kSlabTile);
  const auto x = [&](int t) { return TokenRowsAt(p.activations, token + t, place.col); };
  int t = 0;
  for (; t + kSlabTile <= tokens; t += kSlabTile) {
    ahead.AskForWeights();
    if (t + 2 * kSlabTile <= tokens) ahead.AskForTile(x(t + kSlabTile), place.groups);
    SlabTimesTile<type, P, kSlabTile>(slab, place, x(t), sums.of + t);
  }
  if (t < tokens) ahead.AskForWeights();
  for (; t + 2 <= tokens; t += 2) SlabTimesTile<type, P, 2>(slab, place, x(t), sums.of + t);
  if (t < tokens) SlabTimesTile<type, P, 1>(slab, place, x(t), sums.of + t);
}

// Columns [begin, end) of P panels from `panel` on, of which others follow or not, for the tokens
// of a pass.
template <DType type, int P>
void PanelsTimesPass(const GemmParams& p, int panel, int begin, int end, int token, int tokens) {
  const auto at = [&](int first, int col) {
    const int left = (end - col) / kActivationBlock;
    return SlabPlace{first, col, left < kSlabGroups ? left : kSlabGroups};
  };
  PassSums<P> sums;
  if (begin > 0) sums.Load(p, panel, token, tokens);
  for (int col = begin; col < end; col += kSlabCols) {
    SlabPlace next = at(panel, col);
    if (col + kSlabCols < end) {
      next = at(panel, col + kSlabCols);
    } else if (panel + 2 * P <= p.panel_end) {
      next = at(panel + P, begin);
    }
    SlabTimesTokens<type, P>(p, at(panel, col), next, token, tokens, sums);
  }
  sums.Save(p, panel, token, tokens);
}

// Columns whose activations stay in the second-level cache while the panels pass.
inline int ChunkColumns(int cols, int tokens) {
  constexpr int kCacheBytes = 384 << 10;
  const int columns = kCacheBytes / tokens / kSlabCols * kSlabCols;
  return columns < kSlabCols ? kSlabCols : columns < cols ? columns : cols;
}

// All panels of the call for the tokens of a pass.
template <DType type>
void GemmPass(const GemmParams& p, int token, int tokens) {
  const int cols = p.weights.cols, chunk = ChunkColumns(cols, tokens);
  for (int begin = 0; begin < cols; begin += chunk) {
    const int end = begin + chunk < cols ? begin + chunk : cols;
    int panel = p.panel_begin;
    for (; panel + kSlabPanels <= p.panel_end; panel += kSlabPanels)
      PanelsTimesPass<type, kSlabPanels>(p, panel, begin, end, token, tokens);
    for (; panel < p.panel_end; ++panel)
      PanelsTimesPass<type, 1>(p, panel, begin, end, token, tokens);
  }
}

template <DType type>
void GemmQuantised(const GemmParams& p) {
  if (p.tokens > kFewTokens) {
    for (int token = 0; token < p.tokens; token += kPassTokens) {
      const int left = p.tokens - token;
      GemmPass<type>(p, token, left < kPassTokens ? left : kPassTokens);
    }
    return;
  }
  for (int panel = p.panel_begin; panel < p.panel_end; ++panel) {
    int token = 0;
    for (; token + 4 <= p.tokens; token += 4) PanelTimesFew<type, 4>(p, panel, token);
    for (; token + 2 <= p.tokens; token += 2) PanelTimesFew<type, 2>(p, panel, token);
    if (token < p.tokens) PanelTimesFew<type, 1>(p, panel, token);
  }
}

}  // namespace
}  // namespace thermocline::kernels
