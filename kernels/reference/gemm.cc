// Scalar oracle of gemm.h.
#include <cmath>
#include <cstring>

#include "kernels/layout/panel_view.h"
#include "kernels/reference/reference.h"

namespace thermocline::kernels::reference {
namespace {

float LoadWeight(DType type, const std::uint8_t* panel, int col, int lane) {
  const std::size_t index = StartOf(col, kPanelRows) + lane;
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

// One token's activations.
struct TokenView {
  const std::int8_t* q;
  const float* scale;
  const float* scaled_sum;
};

// Exact: sum of (level - offset) * q over columns [begin, end) of a block; q points to its first
// column.
int Dot(DType type, const std::uint8_t* block, int lane, int begin, int end, const std::int8_t* q) {
  int dot = 0;
  for (int c = begin; c < end; ++c)
    dot += (PanelLevel(type, block, lane, c) - LayoutOf(type).offset) * q[c];
  return dot;
}

float DotBlocks32(const PackedMatrix& w, const std::uint8_t* block, int lane, const TokenView& x) {
  const int min = LayoutOf(w.type).min;
  float acc = 0;
  for (int b = 0; b < w.cols / 32; ++b, block += PanelBytes(w.type, 32)) {
    const auto dot = static_cast<float>(Dot(w.type, block, lane, 0, 32, x.q + b * 32));
    acc = std::fma(PanelScale(w.type, block, lane) * x.scale[b], dot, acc);
    if (min >= 0) acc = std::fma(PanelHalf(block, min, lane), x.scaled_sum[b], acc);
  }
  return acc;
}

int Sum(const std::int8_t* q, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += q[i];
  return sum;
}

// Types with blocks of 256 columns.
float DotBlocks256(const PackedMatrix& w, const std::uint8_t* block, int lane, const TokenView& x) {
  const int halves = HasHalves(w.type) ? 2 : 1, columns = 32 / halves;
  const int dmin = LayoutOf(w.type).min;
  float acc = 0;
  for (int b = 0; b < w.cols / 256; ++b, block += PanelBytes(w.type, 256)) {
    float scaled = 0, mins = 0;
    for (int group = 0; group < 8; ++group) {  // activation blocks of 32
      int dot = 0, min = 0;
      for (int sub = halves * group; sub < halves * (group + 1); ++sub) {
        const ScaleAndMin numbers = PanelNumbers(w.type, block, lane, sub);
        const int begin = sub * columns;
        dot += Dot(w.type, block, lane, begin, begin + columns, x.q + b * 256) * numbers.scale;
        min += halves == 1 ? numbers.min : numbers.min * Sum(x.q + b * 256 + begin, columns);
      }
      const int at = b * 8 + group;
      scaled = std::fma(static_cast<float>(dot), x.scale[at], scaled);
      mins = std::fma(static_cast<float>(min), halves == 1 ? x.scaled_sum[at] : x.scale[at], mins);
    }
    acc = std::fma(PanelHalf(block, 0, lane), scaled, acc);
    if (dmin >= 0) acc = std::fma(-PanelHalf(block, dmin, lane), mins, acc);
  }
  return acc;
}

float Output(const GemmParams& p, const std::uint8_t* panel, int lane, int token) {
  const Activations& a = p.activations;
  const std::size_t at = StartOf(token, a.cols);
  if (!Traits(p.weights.type).quantized) return DotFloat(p.weights, panel, lane, a.x + at);
  const TokenView x{a.q + at, a.scale + at / 32, a.scaled_sum + at / 32};
  return IsBlockOf256(p.weights.type) ? DotBlocks256(p.weights, panel, lane, x)
                                      : DotBlocks32(p.weights, panel, lane, x);
}

}  // namespace

void Gemm(const GemmParams& p) {
  for (int panel = p.panel_begin; panel < p.panel_end; ++panel) {
    for (int lane = 0; lane < kPanelRows && panel * kPanelRows + lane < p.weights.rows; ++lane) {
      for (int t = 0; t < p.tokens; ++t) {
        p.out[StartOf(t, p.out_stride) + panel * kPanelRows + lane] =
            Output(p, p.weights.panel(panel), lane, t);
      }
    }
  }
}

}  // namespace thermocline::kernels::reference
