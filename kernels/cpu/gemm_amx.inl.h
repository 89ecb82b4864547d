// gemm.h for many tokens on AMX tiles: int8 products of 16 tokens and 16 rows at a time.
//
// A quad of a panel (4 columns of 16 rows, 64 bytes) is a row of a tile of weights, so 32 columns
// are a tile of 8 rows. Levels are decoded to signed bytes once for kTokensMax tokens; a tile
// product gives the exact integer sums of one block, which are scaled and added in AVX-512 in the
// same order as without tiles: the same bits. Per block and 16 tokens: a product and 16 stores of
// the tile, which do not overlap (22 cycles of the 2.6 GHz clock together), then 16 times
// load-convert, multiply, multiply-add (20).
//
// One core of an Intel Xeon (family 6, AMX), 64 rows of 4,096 columns, 64 tokens, G multiply-adds a
// second, beside another process (tests/bench/kernel_speed.cc):       Q4_0  Q8_0  Q4_K  Q6_K
//   AVX-512                                                            235   236   215   165
//   tiles, chunks of 2,048 columns, tiles configured for each chunk    215   228   197   143
//   chunks of 512 columns, configured once                             262   278   217   165
//   a token's sums in registers over four groups                       250   271
// So only types with one scale for 32 columns use tiles: 1.1 to 1.3 times AVX-512 from 16 tokens
// on. Activations packed in the order of tiles would give 7% more, and cost more than that where
// sums wait in `out` meanwhile.
//
// `Tiles` is the hardware, or its emulation in a test.
#include "kernels/gemm.h"

namespace thermocline::kernels {
namespace {

constexpr int kTileTokens = 16;   // rows of a tile of activations
constexpr int kTokensMin = 8;     // below this, AVX-512 alone is faster
constexpr int kTokensMax = 128;   // tokens that share decoded levels
constexpr int kChunkCols = 512;   // columns decoded at a time: 8 KiB of levels, as many of tokens
constexpr int kGroupsAtOnce = 4;  // tile products in flight

// Levels of 32 columns, less the type's offset, as signed bytes in quads.
template <DType type>
inline void DecodeSigned(const std::uint8_t* group, std::uint8_t* out) {
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(LayoutOf(type).offset));
  Unroll<0, 8>([&]<int i>() __attribute__((always_inline)) {
    constexpr int kQuad = QuadOrder(type, i);
    _mm512_storeu_si512(out + kQuad * kQuadBytes,
                        _mm512_sub_epi8(RawLevel<type, kQuad>(group), offset));
  });
}

// Returns the levels of group `g` (32 columns) of a panel.
template <DType type>
inline const std::uint8_t* GroupAt(const std::uint8_t* panel, int g) {
  constexpr int kGroups = Traits(type).block_size / kActivationBlock;
  return LevelsAt<type>(BlockAt<type>(panel, g * kActivationBlock), g % kGroups);
}

// Sums of one token tile that outlive a chunk of columns.
struct AmxSums {
  F32x16 acc[kTileTokens];
};

// Types that multiply faster with tiles: those with one scale for 32 columns. Minimums, and scales
// in blocks of 256 columns, need so many vector instructions a product that tiles gain nothing.
template <DType type>
constexpr bool kTiled = Traits(type).quantized && !IsBlockOf256(type) && LayoutOf(type).min < 0;

// Integer sums of some groups, as tiles are stored.
struct GroupDots {
  alignas(64) std::int32_t of[kGroupsAtOnce][kTileTokens * kPanelRows];
};

// Groups [first, first + kGroupsAtOnce) of the chunk at `levels`, for one tile of tokens.
template <typename Tiles>
void MultiplyGroups(int first, const std::uint8_t* levels, const Activations& a, int token,
                    GroupDots& dots) {
  const std::int8_t* q = a.q + StartOf(token, a.cols) + first * 32;
  const int groups = a.cols / 32 - first;
  Tiles::template Multiply<0>(q, a.cols, levels, dots.of[0]);
  if (groups > 1) Tiles::template Multiply<1>(q + 32, a.cols, levels + 512, dots.of[1]);
  if (groups > 2) Tiles::template Multiply<2>(q + 64, a.cols, levels + 1024, dots.of[2]);
  if (groups > 3) Tiles::template Multiply<3>(q + 96, a.cols, levels + 1536, dots.of[3]);
}

// Scales the products of G groups of MultiplyGroups and adds them up, token by token.
template <DType type, int G>
void AddGroups(const std::uint8_t* panel, int first, const Activations& a, int token, int count,
               const GroupDots& dots, AmxSums& sums) {
  BlockHeader header;
  GroupScales scales[G];
  for (int g = 0; g < G; ++g) {
    const std::uint8_t* block = BlockAt<type>(panel, (first + g) * kActivationBlock);
    DecodeScales<type>(block, header, 0, scales[g]);
  }
  const TokenRows x = TokenRowsAt(a, token, 0);
  for (int t = 0; t < count; ++t) {
    const float* scale = x.scale + t * x.blocks + first;
    F32x16 acc = sums.acc[t];
    Unroll<0, G>([&]<int g>() __attribute__((always_inline)) {
      const F32x16 factor = MulF(scales[g].scale[0], Set1(scale[g]));
      acc = Fma(factor, ToF32(LoadI32(dots.of[g] + t * 16)), acc);
    });
    sums.acc[t] = acc;
  }
}
template <DType type>
void AddGroups(int groups, const std::uint8_t* panel, int first, const Activations& a, int token,
               int count, const GroupDots& dots, AmxSums& sums) {
  switch (groups < kGroupsAtOnce ? groups : kGroupsAtOnce) {
    case 1:
      return AddGroups<type, 1>(panel, first, a, token, count, dots, sums);
    case 2:
      return AddGroups<type, 2>(panel, first, a, token, count, dots, sums);
    case 3:
      return AddGroups<type, 3>(panel, first, a, token, count, dots, sums);
    default:
      return AddGroups<type, kGroupsAtOnce>(panel, first, a, token, count, dots, sums);
  }
}

// Groups [begin, end) for one tile of tokens. The tiles' products of some groups are made while
// those of the groups before them are scaled: neither needs the other's result.
template <typename Tiles, DType type>
void AddTile(const std::uint8_t* panel, int begin, int end, const std::uint8_t* levels,
             const Activations& a, int token, int count, AmxSums& sums) {
  GroupDots dots[2];
  MultiplyGroups<Tiles>(begin, levels, a, token, dots[0]);
  for (int g = begin, turn = 0; g < end; g += kGroupsAtOnce, turn ^= 1) {
    const int next = g + kGroupsAtOnce;
    if (next < end)
      MultiplyGroups<Tiles>(next, levels + (next - begin) * 512, a, token, dots[turn ^ 1]);
    AddGroups<type>(a.cols / 32 - g, panel, g, a, token, count, dots[turn], sums);
  }
}

// `configured`: the tokens that tiles are configured for, 0 at first.
template <typename Tiles, DType type>
void TilePanel(const GemmParams& p, int panel_index, int token_begin, int tokens, int& configured) {
  const std::uint8_t* panel = p.weights.panel(panel_index);
  const int cols = p.weights.cols, tiles = (tokens + kTileTokens - 1) / kTileTokens;
  alignas(64) std::uint8_t levels[kChunkCols * kPanelRows];
  AmxSums sums[kTokensMax / kTileTokens];
  for (int tile = 0; tile < tiles; ++tile) {
    for (F32x16& acc : sums[tile].acc) acc = ZeroF();
  }
  for (int begin = 0; begin < cols; begin += kChunkCols) {
    const int end = begin + kChunkCols < cols ? begin + kChunkCols : cols;
    for (int g = begin / 32; g < end / 32; ++g)
      DecodeSigned<type>(GroupAt<type>(panel, g), levels + (g - begin / 32) * 512);
    for (int tile = 0; tile < tiles; ++tile) {
      const int token = token_begin + tile * kTileTokens;
      const int left = token_begin + tokens - token;
      const int count = left < kTileTokens ? left : kTileTokens;
      if (count != configured) Tiles::Configure(configured = count);  // some 170 cycles
      AddTile<Tiles, type>(panel, begin / 32, end / 32, levels, p.activations, token, count,
                           sums[tile]);
    }
  }
  for (int t = 0; t < tokens; ++t) {
    StorePartial(OutputAt(p, panel_index, token_begin + t), RowsOfPanel(p, panel_index),
                 sums[t / kTileTokens].acc[t % kTileTokens]);
  }
}

template <typename Tiles, DType type>
void TileGemm(const GemmParams& p) {
  int configured = 0;
  for (int panel = p.panel_begin; panel < p.panel_end; ++panel) {
    for (int token = 0; token < p.tokens; token += kTokensMax) {
      const int left = p.tokens - token;
      TilePanel<Tiles, type>(p, panel, token, left < kTokensMax ? left : kTokensMax, configured);
    }
  }
  Tiles::Release();
}

template <typename Tiles>
void GemmWithTiles(const GemmParams& p) {
  if (p.tokens < kTokensMin) return Gemm(p);
  ForDType(p.weights.type, [&](auto type) {
    if constexpr (kTiled<type>) {
      TileGemm<Tiles, type>(p);
    } else {
      Gemm(p);
    }
  });
}

}  // namespace
}  // namespace thermocline::kernels
