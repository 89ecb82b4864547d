// Scalar oracle of gemm.h.
#include <cmath>
#include <cstring>

#include "kernels/reference/reference.h"

namespace thermocline::kernels::reference {
namespace {

std::uint16_t Load16(const std::uint8_t* p) {
  std::uint16_t value;
  std::memcpy(&value, p, 2);
  return value;
}

float LoadWeight(DType type, const std::uint8_t* panel, int col, int lane) {
  const std::size_t index =
      static_cast<std::size_t>(col) * kPanelRows + static_cast<std::size_t>(lane);
  if (type == DType::kF32) {
    float value;
    std::memcpy(&value, panel + index * 4, 4);
    return value;
  }
  const std::uint16_t bits = Load16(panel + index * 2);
  return type == DType::kF16 ? HalfToFloat(bits) : BfloatToFloat(bits);
}

float DotFloat(const PackedMatrix& w, const std::uint8_t* panel, int lane, const float* x) {
  float chain[4] = {};
  for (int c = 0; c < w.cols; ++c)
    chain[c % 4] = std::fma(LoadWeight(w.type, panel, c, lane), x[c], chain[c % 4]);
  return (chain[0] + chain[1]) + (chain[2] + chain[3]);
}

// The block of one row taken out of its panel; `block` counts blocks of 32 (256 for Q6_K).
struct TokenView {
  const std::int8_t* q;
  const float* scale;
  const std::int32_t* sum;
};

int Nibble(const std::uint8_t* quads, int lane, int col) {
  const std::uint8_t byte = quads[(col % 16) / 4 * 64 + lane * 4 + col % 4];
  return col < 16 ? byte & 15 : byte >> 4;
}

float DotQ8_0(const PackedMatrix& w, const std::uint8_t* panel, int lane, const TokenView& x) {
  float acc = 0;
  for (int b = 0; b < w.cols / 32; ++b) {
    const std::uint8_t* block = panel + static_cast<std::size_t>(b) * 544;
    std::int32_t dot = 0;
    for (int c = 0; c < 32; ++c)
      dot += (block[32 + c / 4 * 64 + lane * 4 + c % 4] - 128) * x.q[b * 32 + c];
    acc =
        std::fma(HalfToFloat(Load16(block + 2 * lane)) * x.scale[b], static_cast<float>(dot), acc);
  }
  return acc;
}

float DotQ4_0(const PackedMatrix& w, const std::uint8_t* panel, int lane, const TokenView& x) {
  float acc = 0;
  for (int b = 0; b < w.cols / 32; ++b) {
    const std::uint8_t* block = panel + static_cast<std::size_t>(b) * 288;
    std::int32_t dot = 0;
    for (int c = 0; c < 32; ++c) dot += (Nibble(block + 32, lane, c) - 8) * x.q[b * 32 + c];
    acc =
        std::fma(HalfToFloat(Load16(block + 2 * lane)) * x.scale[b], static_cast<float>(dot), acc);
  }
  return acc;
}

float DotQ4_1(const PackedMatrix& w, const std::uint8_t* panel, int lane, const TokenView& x) {
  float acc = 0;
  for (int b = 0; b < w.cols / 32; ++b) {
    const std::uint8_t* block = panel + static_cast<std::size_t>(b) * 320;
    std::int32_t dot = 0;
    for (int c = 0; c < 32; ++c) dot += Nibble(block + 64, lane, c) * x.q[b * 32 + c];
    acc =
        std::fma(HalfToFloat(Load16(block + 2 * lane)) * x.scale[b], static_cast<float>(dot), acc);
    const float block_sum = x.scale[b] * static_cast<float>(x.sum[b]);
    acc = std::fma(HalfToFloat(Load16(block + 32 + 2 * lane)), block_sum, acc);
  }
  return acc;
}

int SixBits(const std::uint8_t* sub_block, int lane, int col) {
  const std::uint8_t low = sub_block[col / 8 * 64 + lane * 4 + col % 4];
  const std::uint8_t high = sub_block[128 + lane * 4 + col % 4];
  return (col % 8 < 4 ? low & 15 : low >> 4) | ((high >> (col / 4 * 2)) & 3) << 4;
}

float DotQ6K(const PackedMatrix& w, const std::uint8_t* panel, int lane, const TokenView& x) {
  float acc = 0;
  for (int b = 0; b < w.cols / 256; ++b) {
    const std::uint8_t* block = panel + static_cast<std::size_t>(b) * 3360;
    const float d = HalfToFloat(Load16(block + 2 * lane));
    for (int half = 0; half < 8; ++half) {  // activation blocks of 32
      std::int32_t scaled = 0;
      for (int sub = 2 * half; sub < 2 * half + 2; ++sub) {
        std::int32_t dot = 0;
        for (int c = 0; c < 16; ++c) {
          dot += (SixBits(block + 288 + sub * 192, lane, c) - 32) * x.q[b * 256 + sub * 16 + c];
        }
        scaled += dot * static_cast<std::int8_t>(block[32 + sub * 16 + lane]);
      }
      acc = std::fma(d * x.scale[b * 8 + half], static_cast<float>(scaled), acc);
    }
  }
  return acc;
}

float Dot(const GemmParams& p, const std::uint8_t* panel, int lane, int token) {
  const int cols = p.weights.cols;
  const std::size_t at = static_cast<std::size_t>(token) * static_cast<std::size_t>(cols);
  if (!Traits(p.weights.type).quantized)
    return DotFloat(p.weights, panel, lane, p.activations.x + at);
  const TokenView x{p.activations.q + at, p.activations.scale + at / 32,
                    p.activations.sum + at / 32};
  switch (p.weights.type) {
    case DType::kQ8_0:
      return DotQ8_0(p.weights, panel, lane, x);
    case DType::kQ4_0:
      return DotQ4_0(p.weights, panel, lane, x);
    case DType::kQ4_1:
      return DotQ4_1(p.weights, panel, lane, x);
    default:
      return DotQ6K(p.weights, panel, lane, x);
  }
}

}  // namespace

void Gemm(const GemmParams& p) {
  for (int panel = p.panel_begin; panel < p.panel_end; ++panel) {
    for (int lane = 0; lane < kPanelRows && panel * kPanelRows + lane < p.weights.rows; ++lane) {
      for (int t = 0; t < p.tokens; ++t) {
        p.out[static_cast<std::size_t>(t) * static_cast<std::size_t>(p.out_stride) +
              static_cast<std::size_t>(panel * kPanelRows + lane)] =
            Dot(p, p.weights.panel(panel), lane, t);
      }
    }
  }
}

}  // namespace thermocline::kernels::reference
