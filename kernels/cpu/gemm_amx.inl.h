// gemm.h for many tokens on AMX tiles: int8 products of 16 tokens and 16 rows at a time.
//
// A quad of a panel (4 columns of 16 rows, 64 bytes) is a row of a tile of weights, so 32 columns
// are a tile of 8 rows. Levels are decoded to signed bytes once for kTokensMax tokens; a tile
// product gives the exact integer sums of one block, which are scaled and added in AVX-512 in the
// same order as without tiles: the same bits. Per block and 16 tokens: 16 stores of the tile and 16
// times load-convert, multiply, multiply-add, which bound it; the product itself hides behind them.
//
// `Tiles` is the hardware, or its emulation in a test.
#include "kernels/gemm.h"

namespace thermocline::kernels {
namespace {

constexpr int kTileTokens = 16;   // rows of a tile of activations
constexpr int kTokensMin = 8;     // below this, AVX-512 alone is faster
constexpr int kTokensMax = 128;   // tokens that share decoded levels
constexpr int kChunkCols = 2048;  // columns decoded at a time: 32 KiB of levels
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
  F32x16 scaled[kTileTokens];  // K types: of the current block of 256 columns
  F32x16 mins[kTileTokens];
};

// Adds the products of group `g`; dots [2][16 tokens][16 rows], the second half for halves.
template <DType type>
inline void AddGroup(const BlockHeader& header, const GroupScales& scales, int g,
                     const Activations& a, int token, int count, const std::int32_t* dots,
                     AmxSums& sums) {
  constexpr bool kHasMin = LayoutOf(type).min >= 0;
  const TokenRows x = TokenRowsAt(a, token, 0);
  for (int t = 0; t < count; ++t) {
    const std::ptrdiff_t at = t * x.blocks + g;
    const F32x16 scale = Set1(x.scale[at]), dot = ToF32(LoadI32(dots + t * 16));
    if constexpr (!IsBlockOf256(type)) {
      sums.acc[t] = Fma(MulF(scales.scale[0], scale), dot, sums.acc[t]);
      if constexpr (kHasMin) sums.acc[t] = AddMinimums<type>(scales, x, at, scale, sums.acc[t]);
    } else {
      if (g % kBlockGroups == 0) sums.scaled[t] = sums.mins[t] = ZeroF();
      F32x16 product = MulF(dot, scales.scale[0]);
      if constexpr (HasHalves(type))
        product = AddF(product, MulF(ToF32(LoadI32(dots + 256 + t * 16)), scales.scale[1]));
      sums.scaled[t] = Fma(product, scale, sums.scaled[t]);
      if constexpr (kHasMin) sums.mins[t] = AddMinimums<type>(scales, x, at, scale, sums.mins[t]);
      if (g % kBlockGroups != kBlockGroups - 1) continue;
      sums.acc[t] = Fma(header.d, sums.scaled[t], sums.acc[t]);
      if constexpr (kHasMin) sums.acc[t] = Fma(header.dmin, sums.mins[t], sums.acc[t]);
    }
  }
}

// Integer sums of one group for a tile of tokens: [16][16], or twice that for two halves.
template <typename Tiles, DType type, int kTile>
inline void TileProduct(const std::uint8_t* levels, const std::int8_t* q, int stride,
                        std::int32_t* dots) {
  if constexpr (HasHalves(type)) {
    Tiles::template Multiply<kTile, true>(q, stride, levels, dots);
    Tiles::template Multiply<kTile, true>(q + 16, stride, levels + 4 * kQuadBytes, dots + 256);
  } else {
    Tiles::template Multiply<kTile, false>(q, stride, levels, dots);
  }
}

// Integer sums of some groups, as tiles are stored.
struct GroupDots {
  alignas(64) std::int32_t of[kGroupsAtOnce][2 * kTileTokens * kPanelRows];
};

// Groups [first, first + kGroupsAtOnce) of the chunk at `levels`, for one tile of tokens.
template <typename Tiles, DType type>
void MultiplyGroups(int first, const std::uint8_t* levels, const Activations& a, int token,
                    GroupDots& dots) {
  const std::int8_t* q = a.q + StartOf(token, a.cols) + first * 32;
  const int groups = a.cols / 32 - first;
  TileProduct<Tiles, type, 0>(levels, q, a.cols, dots.of[0]);
  if (groups > 1) TileProduct<Tiles, type, 1>(levels + 512, q + 32, a.cols, dots.of[1]);
  if (groups > 2) TileProduct<Tiles, type, 2>(levels + 1024, q + 64, a.cols, dots.of[2]);
  if (groups > 3) TileProduct<Tiles, type, 3>(levels + 1536, q + 96, a.cols, dots.of[3]);
}

// Scales and adds up the products of MultiplyGroups.
template <DType type>
void AddGroups(const std::uint8_t* panel, int first, const Activations& a, int token, int count,
               const GroupDots& dots, AmxSums& sums) {
  const int left = a.cols / 32 - first, groups = left < kGroupsAtOnce ? left : kGroupsAtOnce;
  constexpr int kGroups = Traits(type).block_size / kActivationBlock;
  BlockHeader header;  // shared by the groups, which are in one block of 256
  for (int g = first; g < first + groups; ++g) {
    const std::uint8_t* block = BlockAt<type>(panel, g * kActivationBlock);
    if (g == first) DecodeHeader<type>(block, header);
    GroupScales scales;
    DecodeScales<type>(block, header, g % kGroups, scales);
    AddGroup<type>(header, scales, g, a, token, count, dots.of[g - first], sums);
  }
}

// Groups [begin, end) for one tile of tokens. The tiles' products of some groups are made while
// those of the groups before them are scaled: neither needs the other's result.
template <typename Tiles, DType type>
void AddTile(const std::uint8_t* panel, int begin, int end, const std::uint8_t* levels,
             const Activations& a, int token, int count, AmxSums& sums) {
  GroupDots dots[2];
  MultiplyGroups<Tiles, type>(begin, levels, a, token, dots[0]);
  for (int g = begin, turn = 0; g < end; g += kGroupsAtOnce, turn ^= 1) {
    const int next = g + kGroupsAtOnce;
    if (next < end)
      MultiplyGroups<Tiles, type>(next, levels + (next - begin) * 512, a, token, dots[turn ^ 1]);
    AddGroups<type>(panel, g, a, token, count, dots[turn], sums);
  }
}

template <typename Tiles, DType type>
void TilePanel(const GemmParams& p, int panel_index, int token_begin, int tokens) {
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
      Tiles::Configure(count);
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
  for (int panel = p.panel_begin; panel < p.panel_end; ++panel) {
    for (int token = 0; token < p.tokens; token += kTokensMax) {
      const int left = p.tokens - token;
      TilePanel<Tiles, type>(p, panel, token, left < kTokensMax ? left : kTokensMax);
    }
  }
  Tiles::Release();
}

template <typename Tiles>
void GemmWithTiles(const GemmParams& p) {
  if (p.tokens < kTokensMin) return Gemm(p);
  ForDType(p.weights.type, [&](auto type) {
    if constexpr (Traits(type).quantized) {
      TileGemm<Tiles, type>(p);
    } else {
      Gemm(p);
    }
  });
}

}  // namespace
}  // namespace thermocline::kernels
