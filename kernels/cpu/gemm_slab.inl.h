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
// Measured on one core of an AMD EPYC (Zen 5, 4.2 GHz), weights in cache, G multiply-adds a second
// with 1, 4 and 64 tokens (tests/bench/kernel_speed.cc), before and after in turns. The dot
// products alone make 532 (AVX-512), 264 (AVX-VNNI) and 241 (AVX2's words):
//                                     Q4_0           Q8_0           Q4_K           Q6_K
//   AVX-512  4 to 8 tokens a decode   147 292 310    136 296 302    110 231 243     89 208 223
//            groups, slabs            147 292 369    136 298 364    109 297 329    104 220 312
//   VNNI     4 tokens a decode        109 135 138    108 135 138     76 117 118     62 103 105
//            groups, slabs            105 200 192    103 202 189    109 161 165     65 122 161
//   AVX2     4 tokens a decode        112 147 149     71  79  80     79 136 137     56  84  86
//            groups, slabs            102 152 162     73  93 101     96 142 157     61 107 146
// The effect of each step (Q4_0, 64 tokens, AVX-512 and AVX2):
//   slabs of 256 columns, one panel after the other                    338 148
//   offsets' sums broadcast from memory, partial panels apart          357 156
//   slabs of 512 columns                                               369 159
//   the same of 128 tokens, sums in `out`: few sets of the caches      317 124
//   sums of a pass side by side                                        382 164
//   the next tile's activations asked for                              356 155
//   levels copied as structs instead of loaded as vectors              369  30
// A tile of 5 or 6 tokens, three or four panels, or activations packed anew for each call gave 0 to
// 4% in AVX-512 and AVX2, and lost as much with few panels a call.
//
// Included by gemm.inl.h.
#include "kernels/cpu/group.inl.h"
#include "kernels/cpu/vector128.h"

namespace thermocline::kernels {
namespace {

constexpr int kSlabCols = 512;
constexpr int kSlabGroups = kSlabCols / kActivationBlock;
constexpr int kSlabTile = 4;      // tokens
constexpr int kPassTokens = 128;  // that share decoded weights

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

// sum + a group's minimums times the sums of its activations, of which `block` is the block.
template <DType type>
[[gnu::always_inline]] inline F32x16 AddMinimums(const GroupScales& scales, const TokenRows& x,
                                                 std::ptrdiff_t block, F32x16 scale, F32x16 sum) {
  if constexpr (!HasHalves(type)) return Fma(scales.min, Set1(x.scaled_sum[block]), sum);
  const std::int32_t* pairs = x.pair_sum + 2 * block;
  const I32x16 first = AddTimesSum(ZeroI(), scales.min_words[0], pairs[0]);
  return Fma(ToF32(AddTimesSum(first, scales.min_words[1], pairs[1])), scale, sum);
}

// Adds the products of group `at` of the tile's columns. Products of a dot product and a scale, and
// sums of two halves', are below 2^24: exact in f32.
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
      auto& to = IsBlockOf256(type) ? sums.mins : sums.acc;
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p)
        to[p][t] = AddMinimums<type>(*group[p], x, t * x.blocks + at, scale, to[p][t]);
    }
  }
}

// Ends a block of 256 columns.
template <DType type, int P, int T>
[[gnu::always_inline]] inline void EndBlock(const BlockHeader* const (&header)[P],
                                            TileSums<P, T>& sums) {
  for (int p = 0; p < P; ++p) {
    for (int t = 0; t < T; ++t) {
      sums.acc[p][t] = Fma(header[p]->d, sums.scaled[p][t], sums.acc[p][t]);
      if constexpr (LayoutOf(type).min >= 0)
        sums.acc[p][t] = Fma(header[p]->dmin, sums.mins[p][t], sums.acc[p][t]);
    }
  }
}

[[gnu::always_inline]] inline int RowsOfPanel(const GemmParams& p, int panel) {
  const int left = p.weights.rows - panel * kPanelRows;
  return left < kPanelRows ? left : kPanelRows;
}
[[gnu::always_inline]] inline float* OutputAt(const GemmParams& p, int panel, int token) {
  return p.out + StartOf(token, p.out_stride) + panel * kPanelRows;
}

template <int lines>
[[gnu::always_inline]] inline void PrefetchLines(const std::uint8_t* from) {
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
      if (p.prefetch_bytes > 0)  // a share of the block, headers too
        PrefetchLines<kGroupLines>(block + g * (BlockBytes<type>() / kGroups) + p.prefetch_bytes);
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

// The sums of P panels' rows for the tokens of one pass, over all slabs. They are kept apart from
// `out`, where the rows of neighbouring tokens are far apart and so compete for few sets of the
// caches.
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

// Multiplies a slab of P panels by the same columns of T tokens. `to` holds the sums over the
// previous slabs and receives the new ones; at column 0 they begin from zero.
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

// Prefetches the next slab's weights, a part with each tile of tokens: they are all needed at once
// when it is decoded, and the processor's own prefetching starts over with each slab.
template <DType type, int P>
class NextSlab {
 public:
  NextSlab(const GemmParams& p, const SlabPlace& next, int tiles) {
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
  NextSlab<type, P> ahead(p, next, (tokens + kSlabTile - 1) / kSlabTile);
  const auto x = [&](int t) { return TokenRowsAt(p.activations, token + t, place.col); };
  int t = 0;
  for (; t + kSlabTile <= tokens; t += kSlabTile) {
    ahead.AskForWeights();
    SlabTimesTile<type, P, kSlabTile>(slab, place, x(t), sums.of + t);
  }
  if (t < tokens) ahead.AskForWeights();
  for (; t + 2 <= tokens; t += 2) SlabTimesTile<type, P, 2>(slab, place, x(t), sums.of + t);
  if (t < tokens) SlabTimesTile<type, P, 1>(slab, place, x(t), sums.of + t);
}

// Columns [begin, end) of P panels from `panel` on, for the tokens of a pass.
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
  const int columns = kCacheBytes / tokens / kSlabCols * kSlabCols;  // 3,072 at least
  return columns < cols ? columns : cols;
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
