// Packing of signs (sign_predict.h).
#include "kernels/sign_predict.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace thermocline::kernels {
namespace {

// Bits 0 of eight bytes as one byte.
std::uint64_t LowBits(std::uint64_t eight) {
  return ((eight & 0x0101010101010101U) * 0x0102040810204080U) >> 56;
}

// Bit `bit` of each of `n` bytes, as words. Requires: `bytes` padded with zeros to 512.
void PackBit(const std::uint8_t* bytes, int words, int bit, std::uint64_t* out) {
  for (int w = 0; w < words; ++w) {
    out[w] = 0;
    for (int i = 0; i < 8; ++i) {
      std::uint64_t eight;
      std::memcpy(&eight, bytes + w * 64 + i * 8, 8);
      out[w] |= LowBits(eight >> bit) << (8 * i);
    }
  }
}

constexpr std::uint8_t kNegative = 0x80;

// Levels of 512 inputs, the sign as the highest bit.
void Quantize512(const float* x, int n, float inverse, int largest, std::uint8_t* out) {
  for (int i = 0; i < n; ++i) {
    const float level = std::fabs(x[i]) * inverse + 0.5F;
    const int m = level < static_cast<float>(largest) ? static_cast<int>(level) : largest;
    out[i] = static_cast<std::uint8_t>(m | (x[i] < 0 ? kNegative : 0));
  }
}

float MeanSquare(const float* x, int n) {
  float chain[16] = {};
  for (int i = 0; i < n; ++i) chain[i % 16] += x[i] * x[i];
  float sum = 0;
  for (const float each : chain) sum += each;
  return sum / static_cast<float>(n);
}

}  // namespace

void PackSigns(const float* weights, int cols, std::uint64_t* sign, std::uint64_t* magnitude) {
  double mean = 0;
  for (int c = 0; c < cols; ++c) mean += std::fabs(weights[c]);
  mean /= cols;
  for (int w = 0; w < SignWords(cols); ++w) {
    std::uint64_t negative = 0, large = 0;
    for (int i = 0; i < 64 && w * 64 + i < cols; ++i) {
      const float weight = weights[w * 64 + i];
      negative |= static_cast<std::uint64_t>(weight < 0) << i;
      large |= static_cast<std::uint64_t>(std::fabs(weight) > mean) << i;
    }
    sign[w] = negative;
    if (magnitude != nullptr) magnitude[w] = large;
  }
}

SignInput PackSignInput(const float* x, int cols, int slices, std::uint64_t* words) {
  const int stride = SignWords(cols);
  const int largest = (1 << slices) - 1;
  const float rms = std::sqrt(MeanSquare(x, cols));
  // One slice: every input counts one.
  const float inverse = slices > 1 && rms > 0 ? 1 / (rms * kSliceStep[slices]) : 0;
  std::int32_t total = 0;
  for (int at = 0; at < stride; at += 8) {
    std::uint8_t bytes[512] = {};
    const int n = cols - at * 64 < 512 ? cols - at * 64 : 512;
    Quantize512(x + at * 64, n, inverse, largest, bytes);
    if (slices == 1) {
      for (int i = 0; i < n; ++i) bytes[i] |= 1;
    }
    PackBit(bytes, 8, 7, words + at);
    for (int s = 0; s < slices; ++s) {
      std::uint64_t* slice = words + (1 + s) * stride + at;
      PackBit(bytes, 8, s, slice);
      for (int w = 0; w < 8; ++w) total += std::popcount(slice[w]) << s;
    }
  }
  return {.slices = slices, .sign = words, .slice = words + stride, .total = total};
}

std::int32_t SignThreshold(int alpha_thousandths, int cols) {
  // negatives = (D - S) / 2 and positives = (D + S) / 2, so S >= D (1000 - a) / (1000 + a).
  const std::int64_t numerator = std::int64_t{cols} * (1000 - alpha_thousandths),
                     denominator = 1000 + alpha_thousandths;
  std::int64_t least = numerator / denominator;
  if (numerator > 0 && numerator % denominator != 0) ++least;
  return static_cast<std::int32_t>(least);
}

}  // namespace thermocline::kernels
