// gemm.h on sixteen lanes: one lane is one row of a panel.
//
// A block of 32 columns of Q4_0 takes 4 loads, 8 mask-and-shift, 8 dot products and 4 further
// instructions for 512 weights. A tile of tokens shares the decoded weights; each token's sums run
// in the same order whatever the tile, so prefill and decode give the same bits. Bytes moved per
// token and matrix: the weights once per tile of tokens; activations stay in L1.
//
// Measured on one Zen 4 core, AVX-512, weights in the second-level cache, one token: Q8_0 100 GB/s,
// Q4_1 70, Q4_0 66, Q5_1 55, Q4_K and Q6_K 53, Q5_K 45; the same core reads 28 from memory. With 64
// tokens Q4_0 makes 181 G multiply-adds a second, of 237 that the dot product alone could.
// AVX2, one Zen 5 core at 3.7 GHz, weights in cache, G multiply-adds a second with one token and
// with 32 (the words' instructions alone: 215, widening each product: 82):
//                                        Q4_0      Q4_1      Q5_1      Q4_K      Q5_K      Q6_K
//                                        Q8_0
//   every product widened to 32 bits    69  77    65  71    42  63    56  67    40  60    40  61 52
//   51 added up in 16 bits first           84 120    80 114    51  82    67 107    45  83    43  70
//   52  61 the same, order left to GCC 12      78  79    74  76    51  72    61  68    45  66    43
//   66    52  61 decoded while multiplied, no array   as the last line: products are spilled, not
//   weights
// What was tried, on weights in memory:
//   software prefetch, 512 B to 8 KiB ahead, to the first or second level    1% to 45% slower
//   scales apart from the quads (all vectors on cache lines, two streams)     18% to 40% slower
//   two blocks' scales together (vectors on cache lines, one stream)          no difference
//   long rows cut into ranges of columns for prompts (ChunkColumns)           no loss; for caches
//                                                                             smaller than 1 MiB
//   each thread its own run of neighbouring panels (base/worker_pool.h)       10% to 40% faster
#include "kernels/gemm.h"
#include "kernels/reference/panel_view.h"

namespace thermocline::kernels {
namespace {

// The activations of one tile of tokens.
template <int T>
struct Tile {
  const float* x[T];
  const std::int8_t* q[T];
  const float* scale[T];
  const float* scaled_sum[T];
  const std::int32_t* sum[T];
  const std::int32_t* half_sum[T];
};

template <int T>
Tile<T> MakeTile(const Activations& a, int token) {
  Tile<T> tile;
  for (int t = 0; t < T; ++t) {
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(token + t) * a.cols;
    const std::ptrdiff_t block = at / kActivationBlock;
    tile.x[t] = a.x + at;
    tile.q[t] = a.q + at;
    tile.scale[t] = a.scale + block;
    tile.scaled_sum[t] = a.scaled_sum + block;
    tile.sum[t] = a.sum + block;
    tile.half_sum[t] = a.half_sum + block;
  }
  return tile;
}

// Sixteen values as they lie in memory, to floats.
enum class Column { kF32, kF16, kBF16, kI8 };

template <Column kind>
inline F32x16 LoadColumn(const std::uint8_t* columns, int col) {
  const auto at = static_cast<std::ptrdiff_t>(col);
  if constexpr (kind == Column::kF32) return LoadF32(columns + at * 64);
  if constexpr (kind == Column::kF16) return LoadF16(columns + at * 32);
  if constexpr (kind == Column::kBF16) return LoadBF16(columns + at * 32);
  if constexpr (kind == Column::kI8) return ToF32(LoadI8(columns + at * 16));
}

// acc[t] = sum over columns of column c times x[t][c], in four chains a token, which hide the
// latency of the multiply-add. Larger tiles go kFloatTile tokens at a time.
template <int T, Column kind>
void MultiplyColumns(const std::uint8_t* columns, int cols, const float* const (&x)[T],
                     F32x16 (&acc)[T]) {
  if constexpr (T > kFloatTile) {
    for (int t = 0; t < T; t += kFloatTile) {
      const float* some[kFloatTile];
      F32x16 part[kFloatTile];
      for (int i = 0; i < kFloatTile; ++i) some[i] = x[t + i];
      MultiplyColumns<kFloatTile, kind>(columns, cols, some, part);
      for (int i = 0; i < kFloatTile; ++i) acc[t + i] = part[i];
    }
  } else {
    F32x16 chain[T][4];
    for (int t = 0; t < T; ++t) {
      for (int i = 0; i < 4; ++i) chain[t][i] = ZeroF();
    }
    int c = 0;
    for (; c + 4 <= cols; c += 4) {
      for (int i = 0; i < 4; ++i) {
        const F32x16 w = LoadColumn<kind>(columns, c + i);
        for (int t = 0; t < T; ++t) chain[t][i] = Fma(w, Set1(x[t][c + i]), chain[t][i]);
      }
    }
    for (int i = 0; c + i < cols; ++i) {
      const F32x16 w = LoadColumn<kind>(columns, c + i);
      for (int t = 0; t < T; ++t) chain[t][i] = Fma(w, Set1(x[t][c + i]), chain[t][i]);
    }
    for (int t = 0; t < T; ++t)
      acc[t] = AddF(AddF(chain[t][0], chain[t][1]), AddF(chain[t][2], chain[t][3]));
  }
}

// The eight quads of 32 columns of a type with nibbles: levels 0..15, or 0..31 with fifth bits.
template <bool kFifthBits>
inline void DecodeNibbles(const std::uint8_t* group, U8x64 (&w)[8]) {
  const std::uint8_t* nibbles = group + (kFifthBits ? kQuadBytes : 0);
  for (int i = 0; i < 4; ++i) {
    const U8x64 packed = LoadU8(nibbles + kQuadBytes * i);
    w[i] = LowNibbles(packed);
    w[4 + i] = HighNibbles(packed);
  }
  if constexpr (kFifthBits) {
    const U8x64 bits = LoadU8(group);
    w[0] = WithFifthBit<0>(w[0], bits);
    w[1] = WithFifthBit<1>(w[1], bits);
    w[2] = WithFifthBit<2>(w[2], bits);
    w[3] = WithFifthBit<3>(w[3], bits);
    w[4] = WithFifthBit<4>(w[4], bits);
    w[5] = WithFifthBit<5>(w[5], bits);
    w[6] = WithFifthBit<6>(w[6], bits);
    w[7] = WithFifthBit<7>(w[7], bits);
  }
}

// The four quads of a Q6_K sub-block, each 0..63.
inline void DecodeSubBlock(const std::uint8_t* p, U8x64* w) {
  const U8x64 low0 = LoadU8(p), low1 = LoadU8(p + kQuadBytes), high = LoadU8(p + 2 * kQuadBytes);
  w[0] = WithTwoBits<0>(LowNibbles(low0), high);
  w[1] = WithTwoBits<1>(HighNibbles(low0), high);
  w[2] = WithTwoBits<2>(LowNibbles(low1), high);
  w[3] = WithTwoBits<3>(HighNibbles(low1), high);
}

// The largest level that DecodeGroup and DecodeSubBlock give.
constexpr int LevelMax(DType type) {
  if (type == DType::kQ8_0) return 255;
  if (type == DType::kQ6_K) return 63;
  return LayoutOf(type).fifth_bits != 0 ? 31 : 15;
}

template <DType type>
inline void DecodeGroup(const std::uint8_t* group, U8x64 (&w)[8]) {
  if constexpr (type == DType::kQ8_0) {
    for (int i = 0; i < 8; ++i) w[i] = LoadU8(group + kQuadBytes * i);
  } else {
    DecodeNibbles<LayoutOf(type).fifth_bits != 0>(group, w);
  }
}

// The functions below add to acc the products of blocks [begin, end) of a panel.

// Q8_0, Q4_0, Q4_1, Q5_0, Q5_1.
template <int T, DType type>
void PanelBlocks32(const std::uint8_t* panel, int begin, int end, const Tile<T>& tile,
                   F32x16 (&acc)[T]) {
  constexpr PanelLayout kLayout = LayoutOf(type);
  constexpr bool kWide = type == DType::kQ8_0;
  constexpr std::int32_t kOffset = kWide ? kWideOffset : kLayout.offset;
  const std::uint8_t* block = panel + static_cast<std::size_t>(begin) * PanelBytes(type, 32);
  for (int b = begin; b < end; ++b, block += PanelBytes(type, 32)) {
    U8x64 w[8];
    DecodeGroup<type>(block + kLayout.header, w);
    I32x16 dot[T];
    for (int t = 0; t < T; ++t) dot[t] = Set1I(-kOffset * tile.sum[t][b]);
    DotQuads<T, 8, LevelMax(type)>(w, tile.q, b * 32, dot);
    const F32x16 d = LoadF16(block);
    for (int t = 0; t < T; ++t)
      acc[t] = Fma(MulF(d, Set1(tile.scale[t][b])), ToF32(dot[t]), acc[t]);
    if constexpr (kLayout.min >= 0) {
      const F32x16 m = LoadF16(block + kLayout.min);
      for (int t = 0; t < T; ++t) acc[t] = Fma(m, Set1(tile.scaled_sum[t][b]), acc[t]);
    }
  }
}

// The scales and minimums of the eight sub-blocks of Q4_K and Q5_K, as floats.
inline void DecodeSixBitNumbers(const std::uint8_t* words, F32x16 (&numbers)[16]) {
  I32x16 word[3];
  for (int i = 0; i < 3; ++i) word[i] = LoadI32(words + kQuadBytes * i);
  for (int k = 0; k < 15; ++k) numbers[k] = ToF32(AndI(ShiftRightI(word[k / 5], 6 * (k % 5)), 63));
  const I32x16 low = ShiftRightI(word[0], 30), middle = AndI(ShiftRightI(word[1], 28), 12),
               high = AndI(ShiftRightI(word[2], 26), 48);
  numbers[15] = ToF32(AddI(low, AddI(middle, high)));
}

// Q4_K, Q5_K. Products of a dot product and a scale are below 2^24: exact in f32.
template <int T, DType type>
void PanelWithMins(const std::uint8_t* panel, int begin, int end, const Tile<T>& tile,
                   F32x16 (&acc)[T]) {
  constexpr PanelLayout kLayout = LayoutOf(type);
  const std::uint8_t* block = panel + static_cast<std::size_t>(begin) * PanelBytes(type, 256);
  for (int b = begin; b < end; ++b, block += PanelBytes(type, 256)) {
    F32x16 numbers[16], scaled[T], mins[T];
    DecodeSixBitNumbers(block + 2 * 32, numbers);
    for (int t = 0; t < T; ++t) scaled[t] = mins[t] = ZeroF();
    for (int sub = 0; sub < 8; ++sub) {
      U8x64 w[8];
      DecodeGroup<type>(block + kLayout.header + sub * kLayout.group_bytes, w);
      I32x16 dot[T];
      for (int t = 0; t < T; ++t) dot[t] = ZeroI();
      const int at = b * 8 + sub;
      DotQuads<T, 8, LevelMax(type)>(w, tile.q, at * 32, dot);
      for (int t = 0; t < T; ++t) {
        scaled[t] = Fma(MulF(ToF32(dot[t]), numbers[sub]), Set1(tile.scale[t][at]), scaled[t]);
        mins[t] = Fma(numbers[8 + sub], Set1(tile.scaled_sum[t][at]), mins[t]);
      }
    }
    const F32x16 d = LoadF16(block), dmin = SubF(ZeroF(), LoadF16(block + kLayout.min));
    for (int t = 0; t < T; ++t) acc[t] = Fma(dmin, mins[t], Fma(d, scaled[t], acc[t]));
  }
}

// Q6_K. The sum of two sub-blocks' scaled dot products is below 2^24: exact in f32.
template <int T>
void PanelQ6K(const std::uint8_t* panel, int begin, int end, const Tile<T>& tile,
              F32x16 (&acc)[T]) {
  constexpr PanelLayout kLayout = LayoutOf(DType::kQ6_K);
  const std::uint8_t* block =
      panel + static_cast<std::size_t>(begin) * PanelBytes(DType::kQ6_K, 256);
  for (int b = begin; b < end; ++b, block += PanelBytes(DType::kQ6_K, 256)) {
    F32x16 scaled[T];
    for (int t = 0; t < T; ++t) scaled[t] = ZeroF();
    for (int group = 0; group < 8; ++group) {
      const int at = b * 8 + group;
      const std::uint8_t* levels = block + kLayout.header + group * kLayout.group_bytes;
      F32x16 both[T];
      for (int half = 0; half < 2; ++half) {
        U8x64 w[4];
        DecodeSubBlock(levels + half * 3 * kQuadBytes, w);
        I32x16 dot[T];
        for (int t = 0; t < T; ++t) {
          const std::int32_t first = tile.half_sum[t][at];
          dot[t] = Set1I(-kLayout.offset * (half == 0 ? first : tile.sum[t][at] - first));
        }
        DotQuads<T, 4, LevelMax(DType::kQ6_K)>(w, tile.q, at * 32 + half * 16, dot);
        const F32x16 scale = ToF32(LoadI8(block + 32 + (group * 2 + half) * kPanelRows));
        for (int t = 0; t < T; ++t) {
          const F32x16 product = MulF(ToF32(dot[t]), scale);
          both[t] = half == 0 ? product : AddF(both[t], product);
        }
      }
      for (int t = 0; t < T; ++t) scaled[t] = Fma(both[t], Set1(tile.scale[t][at]), scaled[t]);
    }
    const F32x16 d = LoadF16(block);
    for (int t = 0; t < T; ++t) acc[t] = Fma(d, scaled[t], acc[t]);
  }
}

// acc += columns [begin, end) of a panel times the tile's tokens. Requires: whole blocks; all
// columns if the type is a float type.
template <int T>
void MultiplyPanel(DType type, const std::uint8_t* panel, int begin, int end, const Tile<T>& tile,
                   F32x16 (&acc)[T]) {
  const int first = begin / Traits(type).block_size, last = end / Traits(type).block_size;
  switch (type) {
    case DType::kF32:
      return MultiplyColumns<T, Column::kF32>(panel, end, tile.x, acc);
    case DType::kF16:
      return MultiplyColumns<T, Column::kF16>(panel, end, tile.x, acc);
    case DType::kBF16:
      return MultiplyColumns<T, Column::kBF16>(panel, end, tile.x, acc);
    case DType::kQ8_0:
      return PanelBlocks32<T, DType::kQ8_0>(panel, first, last, tile, acc);
    case DType::kQ4_0:
      return PanelBlocks32<T, DType::kQ4_0>(panel, first, last, tile, acc);
    case DType::kQ4_1:
      return PanelBlocks32<T, DType::kQ4_1>(panel, first, last, tile, acc);
    case DType::kQ5_0:
      return PanelBlocks32<T, DType::kQ5_0>(panel, first, last, tile, acc);
    case DType::kQ5_1:
      return PanelBlocks32<T, DType::kQ5_1>(panel, first, last, tile, acc);
    case DType::kQ4_K:
      return PanelWithMins<T, DType::kQ4_K>(panel, first, last, tile, acc);
    case DType::kQ5_K:
      return PanelWithMins<T, DType::kQ5_K>(panel, first, last, tile, acc);
    case DType::kQ6_K:
      return PanelQ6K<T>(panel, first, last, tile, acc);
    default:
      return;  // no panels of the other types exist
  }
}

// Columns [begin, end) of one panel for T tokens; later ranges add to what the first ones stored.
template <int T>
void TokenTile(const GemmParams& p, int panel, int token, int begin, int end) {
  const int row = panel * kPanelRows;
  const int rows = p.weights.rows - row < kPanelRows ? p.weights.rows - row : kPanelRows;
  float* out[T];
  F32x16 acc[T];
  for (int t = 0; t < T; ++t) {
    out[t] = p.out + static_cast<std::ptrdiff_t>(token + t) * p.out_stride + row;
    acc[t] = begin == 0 ? ZeroF() : LoadPartial(out[t], rows);
  }
  MultiplyPanel<T>(p.weights.type, p.weights.panel(panel), begin, end,
                   MakeTile<T>(p.activations, token), acc);
  for (int t = 0; t < T; ++t) StorePartial(out[t], rows, acc[t]);
}

void TokenTiles(const GemmParams& p, int panel, int begin, int end) {
  int token = 0;
  for (; token + kTokenTile <= p.tokens; token += kTokenTile)
    TokenTile<kTokenTile>(p, panel, token, begin, end);
  if constexpr (kTokenTile > 4) {  // drafts that are verified: the weights are decoded once
    for (; token + 4 <= p.tokens; token += 4) TokenTile<4>(p, panel, token, begin, end);
  }
  for (; token + 2 <= p.tokens; token += 2) TokenTile<2>(p, panel, token, begin, end);
  for (; token < p.tokens; ++token) TokenTile<1>(p, panel, token, begin, end);
}

// Columns whose activations stay in the second-level cache while the panels pass.
int ChunkColumns(const GemmParams& p) {
  constexpr int kCacheBytes = 384 << 10;
  const int columns = kCacheBytes / p.tokens / 256 * 256;
  if (!Traits(p.weights.type).quantized || columns >= p.weights.cols) return p.weights.cols;
  return columns < 512 ? 512 : columns;
}

void Gemm(const GemmParams& p) {
  const int cols = p.weights.cols, chunk = ChunkColumns(p);
  for (int begin = 0; begin < cols; begin += chunk) {
    const int end = begin + chunk < cols ? begin + chunk : cols;
    for (int panel = p.panel_begin; panel < p.panel_end; ++panel) TokenTiles(p, panel, begin, end);
  }
}

}  // namespace
}  // namespace thermocline::kernels
