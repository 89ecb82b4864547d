// gemm.h on sixteen lanes: one lane is one row of a panel.
//
// A block of 32 columns of Q4_0 takes 4 loads, 8 mask-and-shift, 8 dot products and 4 further
// instructions for 512 weights. A tile of tokens shares the decoded weights; each token's sums run
// in the same order whatever the tile, so prefill and decode give the same bits. Bytes moved per
// token and matrix: the weights once per tile of tokens; activations stay in L1.
#include "kernels/gemm.h"

namespace thermocline::kernels {
namespace {

// The activations of one tile of tokens.
template <int T>
struct Tile {
  const float* x[T];
  const std::int8_t* q[T];
  const float* scale[T];
  const std::int32_t* sum[T];
};

template <int T>
Tile<T> MakeTile(const Activations& a, int token) {
  Tile<T> tile;
  for (int t = 0; t < T; ++t) {
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(token + t) * a.cols;
    tile.x[t] = a.x + at;
    tile.q[t] = a.q + at;
    tile.scale[t] = a.scale + at / kActivationBlock;
    tile.sum[t] = a.sum + at / kActivationBlock;
  }
  return tile;
}

inline F32x16 LoadColumn(const std::uint8_t* panel, int col, DType type) {
  switch (type) {
    case DType::kF32:
      return LoadF32(panel + static_cast<std::ptrdiff_t>(col) * 64);
    case DType::kF16:
      return LoadF16(panel + static_cast<std::ptrdiff_t>(col) * 32);
    default:
      return LoadBF16(panel + static_cast<std::ptrdiff_t>(col) * 32);
  }
}

template <int T, DType type>
void FloatPanel(const std::uint8_t* panel, int cols, const Tile<T>& tile, F32x16 (&acc)[T]) {
  // Four chains a token hide the latency of the multiply-add; larger tiles go two tokens at a time.
  if constexpr (T > 2) {
    Tile<2> pair;
    F32x16 part[2];
    for (int t = 0; t < T; t += 2) {
      pair.x[0] = tile.x[t];
      pair.x[1] = tile.x[t + 1];
      FloatPanel<2, type>(panel, cols, pair, part);
      acc[t] = part[0];
      acc[t + 1] = part[1];
    }
  } else {
    F32x16 chain[T][4];
    for (int t = 0; t < T; ++t) {
      for (int i = 0; i < 4; ++i) chain[t][i] = ZeroF();
    }
    int c = 0;
    for (; c + 4 <= cols; c += 4) {
      for (int i = 0; i < 4; ++i) {
        const F32x16 w = LoadColumn(panel, c + i, type);
        for (int t = 0; t < T; ++t) chain[t][i] = Fma(w, Set1(tile.x[t][c + i]), chain[t][i]);
      }
    }
    for (int i = 0; c + i < cols; ++i) {
      const F32x16 w = LoadColumn(panel, c + i, type);
      for (int t = 0; t < T; ++t) chain[t][i] = Fma(w, Set1(tile.x[t][c + i]), chain[t][i]);
    }
    for (int t = 0; t < T; ++t)
      acc[t] = AddF(AddF(chain[t][0], chain[t][1]), AddF(chain[t][2], chain[t][3]));
  }
}

template <int T>
void PanelQ8_0(const std::uint8_t* panel, int cols, const Tile<T>& tile, F32x16 (&acc)[T]) {
  for (int b = 0; b < cols / 32; ++b, panel += 544) {
    const F32x16 d = LoadF16(panel);
    U8x64 w[8];
    for (int i = 0; i < 8; ++i) w[i] = LoadU8(panel + 32 + 64 * i);
    for (int t = 0; t < T; ++t) {
      const std::int8_t* q = tile.q[t] + b * 32;
      I32x16 even = Set1I(-kWideOffset * tile.sum[t][b]), odd = ZeroI();
      for (int i = 0; i < 8; i += 2) {
        even = Dot4Wide(even, w[i], q + 4 * i);
        odd = Dot4Wide(odd, w[i + 1], q + 4 * i + 4);
      }
      acc[t] = Fma(MulF(d, Set1(tile.scale[t][b])), ToF32(AddI(even, odd)), acc[t]);
    }
  }
}

template <int T, bool has_min>
void PanelQ4(const std::uint8_t* panel, int cols, const Tile<T>& tile, F32x16 (&acc)[T]) {
  constexpr int kHeader = has_min ? 64 : 32;
  for (int b = 0; b < cols / 32; ++b, panel += kHeader + 256) {
    const F32x16 d = LoadF16(panel);
    U8x64 low[4], high[4];
    for (int i = 0; i < 4; ++i) {
      const U8x64 packed = LoadU8(panel + kHeader + 64 * i);
      low[i] = LowNibbles(packed);
      high[i] = HighNibbles(packed);
    }
    for (int t = 0; t < T; ++t) {
      const std::int8_t* q = tile.q[t] + b * 32;
      const std::int32_t sum = tile.sum[t][b];
      const float scale = tile.scale[t][b];
      I32x16 even = Set1I(has_min ? 0 : -8 * sum), odd = ZeroI();
      for (int i = 0; i < 4; ++i) {
        even = Dot4(even, low[i], q + 4 * i);
        odd = Dot4(odd, high[i], q + 16 + 4 * i);
      }
      acc[t] = Fma(MulF(d, Set1(scale)), ToF32(AddI(even, odd)), acc[t]);
      if constexpr (has_min)
        acc[t] = Fma(LoadF16(panel + 32), Set1(scale * static_cast<float>(sum)), acc[t]);
    }
  }
}

// The four quads of columns of a Q6_K sub-block, each 0..63.
inline void DecodeSubBlock(const std::uint8_t* p, U8x64 (&w)[4]) {
  const U8x64 low0 = LoadU8(p), low1 = LoadU8(p + 64), high = LoadU8(p + 128);
  w[0] = Or(LowNibbles(low0), TwoBitsHigh<0>(high));
  w[1] = Or(HighNibbles(low0), TwoBitsHigh<1>(high));
  w[2] = Or(LowNibbles(low1), TwoBitsHigh<2>(high));
  w[3] = Or(HighNibbles(low1), TwoBitsHigh<3>(high));
}

template <int T>
void PanelQ6K(const std::uint8_t* panel, int cols, const Tile<T>& tile, F32x16 (&acc)[T]) {
  for (int b = 0; b < cols / 32; ++b) {  // blocks of activations; eight make a block of weights
    const std::uint8_t* block = panel + static_cast<std::ptrdiff_t>(b / 8) * 3360;
    const int sub = b % 8 * 2;
    U8x64 w[2][4];
    DecodeSubBlock(block + 288 + sub * 192, w[0]);
    DecodeSubBlock(block + 288 + sub * 192 + 192, w[1]);
    const F32x16 d = LoadF16(block);
    const I32x16 scale[2] = {LoadI8(block + 32 + sub * 16), LoadI8(block + 48 + sub * 16)};
    for (int t = 0; t < T; ++t) {
      const std::int8_t* q = tile.q[t] + b * 32;
      I32x16 scaled = ZeroI();
      for (int s = 0; s < 2; ++s) {
        std::int32_t sum = 0;
        for (int i = 0; i < 16; ++i) sum += q[16 * s + i];
        I32x16 dot = Set1I(-32 * sum);
        for (int i = 0; i < 4; ++i) dot = Dot4(dot, w[s][i], q + 16 * s + 4 * i);
        scaled = AddI(scaled, MulI(dot, scale[s]));
      }
      acc[t] = Fma(MulF(d, Set1(tile.scale[t][b])), ToF32(scaled), acc[t]);
    }
  }
}

template <int T>
void MultiplyPanel(DType type, const std::uint8_t* panel, int cols, const Tile<T>& tile,
                   F32x16 (&acc)[T]) {
  for (int t = 0; t < T; ++t) acc[t] = ZeroF();
  switch (type) {
    case DType::kF32:
      return FloatPanel<T, DType::kF32>(panel, cols, tile, acc);
    case DType::kF16:
      return FloatPanel<T, DType::kF16>(panel, cols, tile, acc);
    case DType::kBF16:
      return FloatPanel<T, DType::kBF16>(panel, cols, tile, acc);
    case DType::kQ8_0:
      return PanelQ8_0<T>(panel, cols, tile, acc);
    case DType::kQ4_0:
      return PanelQ4<T, false>(panel, cols, tile, acc);
    case DType::kQ4_1:
      return PanelQ4<T, true>(panel, cols, tile, acc);
    case DType::kQ6_K:
      return PanelQ6K<T>(panel, cols, tile, acc);
  }
}

template <int T>
void TokenTile(const GemmParams& p, int panel, int token) {
  F32x16 acc[T];
  MultiplyPanel<T>(p.weights.type, p.weights.panel(panel), p.weights.cols,
                   MakeTile<T>(p.activations, token), acc);
  const int row = panel * kPanelRows;
  const int rows = p.weights.rows - row < kPanelRows ? p.weights.rows - row : kPanelRows;
  for (int t = 0; t < T; ++t) {
    float* out = p.out + static_cast<std::ptrdiff_t>(token + t) * p.out_stride + row;
    if (rows == kPanelRows) {
      Store(out, acc[t]);
    } else {
      float lanes[kPanelRows];
      Store(lanes, acc[t]);
      for (int i = 0; i < rows; ++i) out[i] = lanes[i];
    }
  }
}

void Gemm(const GemmParams& p) {
  for (int panel = p.panel_begin; panel < p.panel_end; ++panel) {
    int token = 0;
    for (; token + kTokenTile <= p.tokens; token += kTokenTile)
      TokenTile<kTokenTile>(p, panel, token);
    for (; token + 2 <= p.tokens; token += 2) TokenTile<2>(p, panel, token);
    for (; token < p.tokens; ++token) TokenTile<1>(p, panel, token);
  }
}

}  // namespace
}  // namespace thermocline::kernels
