// Floats to GGUF blocks whose levels stand for values of a codebook.
//
// A scale is fitted from the two that map the extreme weight to the codebook's ends: levels are the
// nearest, then the scale is that of least squares for them. Scales are stored first, levels chosen
// last, against the scales as stored.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/block_codecs.h"
#include "kernels/layout/line_fit.h"
#include "kernels/quantize.h"

namespace thermocline::kernels {
namespace {

constexpr int kRounds = 3;

// A codebook's values ascending, and the level of each.
struct SortedCodebook {
  int count = 0;
  std::int8_t value[16] = {};
  std::uint8_t level[16] = {};

  constexpr explicit SortedCodebook(const std::int8_t (&codebook)[16]) {
    for (int v = -128; v < 128; ++v) {
      for (int i = 0; i < 16; ++i) {
        if (codebook[i] != v) continue;
        value[count] = codebook[i];
        level[count++] = static_cast<std::uint8_t>(i);
        break;  // MXFP4 has two zeros
      }
    }
  }
  // Index of the value nearest to `x`.
  int Nearest(double x) const {
    int low = 0, high = count - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (2 * x > value[middle] + value[middle + 1]) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
};
constexpr SortedCodebook kIq4{kIq4Codebook}, kMxfp4{kMxfp4Codebook};

double WeightOf(const float* importance, int column) {
  return importance == nullptr ? 1 : importance[column];
}

// `importance` [32] or null: the weight of each column.
double SquareError(const SortedCodebook& codebook, const float* x, double scale,
                   const float* importance) {
  double error = 0;
  for (int c = 0; c < 32; ++c) {
    const int i = codebook.Nearest(x[c] * Inverse(scale));
    error += WeightOf(importance, c) * std::pow(x[c] - scale * codebook.value[i], 2);
  }
  return error;
}

// The scale of least squares for the levels that `scale` gives.
double Refit(const float* x, double scale, const float* importance) {
  double products = 0, squares = 0;
  for (int c = 0; c < 32; ++c) {
    const double value = kIq4.value[kIq4.Nearest(x[c] * Inverse(scale))];
    products += WeightOf(importance, c) * x[c] * value;
    squares += WeightOf(importance, c) * value * value;
  }
  return products * Inverse(squares);  // no value is zero, but all weights may be
}

double FitIq4Scale(const float* x, const float* importance) {
  const float extreme =
      *std::max_element(x, x + 32, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  if (extreme == 0) return 0;
  double best = 0, least = INFINITY;
  for (const double end : {kIq4.value[0], kIq4.value[15]}) {
    double scale = extreme / end;
    for (int round = 0; round < kRounds; ++round) {
      const double error = SquareError(kIq4, x, scale, importance);
      if (error < least) {
        least = error;
        best = scale;
      }
      scale = Refit(x, scale, importance);
    }
  }
  return best;
}

// Stores `scale` as a finite f16 at `block`; returns the stored value.
double StoreF16Scale(double scale, std::uint8_t* block) {
  constexpr double kLargest = 65504;
  const std::uint16_t half =
      FloatToHalf(static_cast<float>(std::clamp(scale, -kLargest, kLargest)));
  std::memcpy(block, &half, 2);
  return HalfToFloat(half);
}

void StoreLevels(const SortedCodebook& codebook, const float* x, double scale,
                 std::uint8_t levels[16]) {
  for (int c = 0; c < 32; ++c)
    BitPlane<4, 16>::Set(levels, c, codebook.level[codebook.Nearest(x[c] * Inverse(scale))]);
}

}  // namespace

void QuantizeIq4Nl(const float* x, std::uint8_t* block, const float* importance) {
  std::memset(block, 0, kBytesIq4Nl);
  StoreLevels(kIq4, x, StoreF16Scale(FitIq4Scale(x, importance), block), block + 2);
}

void QuantizeIq4Xs(const float* x, std::uint8_t* block, const float* importance) {
  std::memset(block, 0, kBytesIq4Xs);
  double scales[8], extreme = 0;
  for (int sub = 0; sub < 8; ++sub) {
    scales[sub] =
        FitIq4Scale(x + 32 * sub, importance == nullptr ? nullptr : importance + 32 * sub);
    if (std::fabs(scales[sub]) > std::fabs(extreme)) extreme = scales[sub];
  }
  const double d = StoreF16Scale(extreme / -32, block);
  for (int sub = 0; sub < 8; ++sub) {
    const int stored = RoundSigned(scales[sub] * Inverse(d), 32);
    BitPlane<2, 1>::Set(block + 2, sub, stored >> 4);
    BitPlane<4, 1>::Set(block + 4, sub, stored);
    StoreLevels(kIq4, x + 32 * sub, d * (stored - 32), block + 8 + 16 * sub);
  }
}

// The largest value is 12 times the scale: one of two scales has the largest weight near it.
void QuantizeMxfp4(const float* x, std::uint8_t* block, const float* importance) {
  std::memset(block, 0, kBytesMxfp4);
  float largest = 0;
  for (int c = 0; c < 32; ++c) largest = std::max(largest, std::fabs(x[c]));
  if (largest == 0) return;
  const int first = std::clamp(std::ilogb(largest) + 125, 0, 251);  // 12 * 2^124 is finite
  const auto scale = [](int e) { return std::ldexp(1.0, e - 128); };
  const bool second = SquareError(kMxfp4, x, scale(first + 1), importance) <
                      SquareError(kMxfp4, x, scale(first), importance);
  const int e = first + (second ? 1 : 0);
  block[0] = static_cast<std::uint8_t>(e);
  StoreLevels(kMxfp4, x, scale(e), block + 1);
}

}  // namespace thermocline::kernels
