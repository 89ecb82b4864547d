// GGUF blocks to floats, and exact conversions between block types.
//
// Source: the block formats of ggml's GGUF files.
#include "kernels/block_codecs.h"

#include <algorithm>
#include <cstring>

#include "kernels/quantize.h"

namespace thermocline::kernels {
namespace {

float LoadHalf(const std::uint8_t* p) {
  std::uint16_t half;
  std::memcpy(&half, p, 2);
  return HalfToFloat(half);
}

// Finite: the largest f16 where `scale` is larger.
void StoreScale(float scale, std::uint8_t* p) {
  constexpr float kHalfMax = 65504;
  const std::uint16_t half = FloatToHalf(std::clamp(scale, -kHalfMax, kHalfMax));
  std::memcpy(p, &half, 2);
}

}  // namespace

ScaleAndMin ScaleMinK4(const std::uint8_t scales[12], int sub_block) {
  if (sub_block < 4) return {scales[sub_block] & 63, scales[4 + sub_block] & 63};
  const int low = scales[4 + sub_block];
  return {(low & 15) | (scales[sub_block - 4] >> 6) << 4, low >> 4 | (scales[sub_block] >> 6) << 4};
}

void DequantizeQ5_0(const std::uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int c = 0; c < 32; ++c) out[c] = Scaled(d, LevelQ5(block + 2, block + 6, c) - 16);
}

void DequantizeQ5_1(const std::uint8_t* block, float* out) {
  const float d = LoadHalf(block), m = LoadHalf(block + 2);
  for (int c = 0; c < 32; ++c) out[c] = Scaled(d, LevelQ5(block + 4, block + 8, c)) + m;
}

void DequantizeIq4Nl(const std::uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int c = 0; c < 32; ++c) out[c] = Scaled(d, kIq4Codebook[BitPlane<4, 16>::Get(block + 2, c)]);
}

void DequantizeIq4Xs(const std::uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int c = 0; c < 256; ++c) {
    const float scale = Scaled(d, ScaleIq4Xs(block, c / 32));
    const int level = BitPlane<4, 16>::Get(block + 8 + c / 32 * 16, c % 32);
    out[c] = Scaled(scale, kIq4Codebook[level]);
  }
}

void DequantizeMxfp4(const std::uint8_t* block, float* out) {
  const float scale = ScaleMxfp4(block[0]);
  for (int c = 0; c < 32; ++c)
    out[c] = Scaled(scale, kMxfp4Codebook[BitPlane<4, 16>::Get(block + 1, c)]);
}

void DequantizeTq2(const std::uint8_t* block, float* out) {
  const float d = LoadHalf(block + 64);
  for (int c = 0; c < 256; ++c) out[c] = Scaled(d, BitPlane<2, 32>::Get(block, c) - 1);
}

void QuantizeTq2(const float* x, std::uint8_t* block, const float*) {
  float d = 0;
  for (int c = 0; c < 256; ++c) d = std::max(d, std::fabs(x[c]));
  const auto level = [&](int c) {
    return d > 0 ? std::clamp(std::round(x[c] / d), -1.0F, 1.0F) : 0.0F;
  };
  // The best scale for these levels, then the best levels for it; ternary weights stay.
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds; ++round) {
    double products = 0;
    int count = 0;
    for (int c = 0; c < 256; ++c) {
      products += static_cast<double>(x[c]) * static_cast<double>(level(c));
      count += level(c) != 0 ? 1 : 0;
    }
    if (count > 0) d = static_cast<float>(products / count);
  }
  std::memset(block, 0, kBytesTq2);
  StoreScale(d, block + 64);
  for (int c = 0; c < 256; ++c) BitPlane<2, 32>::Set(block, c, static_cast<int>(level(c)) + 1);
}

void ConvertTq2ToQ4_0(const std::uint8_t* tq2, std::uint8_t* q4_0) {
  constexpr int kBytesQ4_0 = 18;
  std::memset(q4_0, 0, 8 * kBytesQ4_0);
  for (int c = 0; c < 256; ++c) {
    const int level = BitPlane<2, 32>::Get(tq2, c) - 1 + 8;
    BitPlane<4, 16>::Set(q4_0 + c / 32 * kBytesQ4_0 + 2, c % 32, level);
  }
  for (int b = 0; b < 8; ++b) std::memcpy(q4_0 + b * kBytesQ4_0, tq2 + 64, 2);
}

void ConvertTq1ToTq2(const std::uint8_t* tq1, std::uint8_t* tq2) {
  // Runs of bytes, each with the digits of `digits` columns per byte.
  struct Run {
    int first_byte, bytes, digits;
  };
  constexpr Run kRuns[] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
  std::memset(tq2, 0, kBytesTq2);
  std::memcpy(tq2 + 64, tq1 + 52, 2);
  int column = 0;
  for (const Run& run : kRuns) {
    unsigned power = 1;
    for (int digit = 0; digit < run.digits; ++digit, power *= 3) {
      for (int i = 0; i < run.bytes; ++i, ++column) {
        const unsigned byte = (tq1[run.first_byte + i] * power) & 0xFF;
        BitPlane<2, 32>::Set(tq2, column, static_cast<int>((byte * 3) >> 8));
      }
    }
  }
}

void DequantizeQ2K(const std::uint8_t* block, float* out) {
  const float d = LoadHalf(block + 80), dmin = LoadHalf(block + 82);
  for (int c = 0; c < 256; ++c) {
    const std::uint8_t scale_and_min = block[c / 16];
    const float scale = Scaled(d, scale_and_min & 15);
    const float min = Scaled(dmin, scale_and_min >> 4);
    out[c] = Scaled(scale, LevelQ2K(block, c)) - min;
  }
}

void DequantizeQ3K(const std::uint8_t* block, float* out) {
  const float d = LoadHalf(block + 108);
  for (int c = 0; c < 256; ++c) {
    const float scale = Scaled(d, ScaleQ3K(block + 96, c / 16));
    out[c] = Scaled(scale, LevelQ3K(block, c) - 4);
  }
}

void DequantizeQ4K(const std::uint8_t* block, float* out) {
  const float d = LoadHalf(block), dmin = LoadHalf(block + 2);
  for (int c = 0; c < 256; ++c) {
    const auto [scale, min] = ScaleMinK4(block + 4, c / 32);
    out[c] = Scaled(d, scale) * static_cast<float>(LevelQ4K(block, c)) - Scaled(dmin, min);
  }
}

void DequantizeQ5K(const std::uint8_t* block, float* out) {
  const float d = LoadHalf(block), dmin = LoadHalf(block + 2);
  for (int c = 0; c < 256; ++c) {
    const auto [scale, min] = ScaleMinK4(block + 4, c / 32);
    out[c] = Scaled(d, scale) * static_cast<float>(LevelQ5K(block, c)) - Scaled(dmin, min);
  }
}

void DequantizeQ6K(const std::uint8_t* block, float* out) {
  const float d = LoadHalf(block + 208);
  for (int c = 0; c < 256; ++c) {
    const float scale = Scaled(d, static_cast<std::int8_t>(block[192 + c / 16]));
    out[c] = Scaled(scale, LevelQ6K(block, c) - 32);
  }
}

void ConvertQ3KToQ6K(const std::uint8_t* q3k, std::uint8_t* q6k) {
  std::memset(q6k, 0, kBytesQ6K);
  for (int c = 0; c < 256; ++c) SetLevelQ6K(q6k, c, LevelQ3K(q3k, c) - 4 + 32);
  for (int sub = 0; sub < 16; ++sub)
    q6k[192 + sub] = static_cast<std::uint8_t>(ScaleQ3K(q3k + 96, sub));
  std::memcpy(q6k + 208, q3k + 108, 2);
}

void ConvertIq4NlToQ8_0(const std::uint8_t* iq4nl, std::uint8_t* q8_0) {
  std::memcpy(q8_0, iq4nl, 2);
  for (int c = 0; c < 32; ++c)
    q8_0[2 + c] = static_cast<std::uint8_t>(kIq4Codebook[BitPlane<4, 16>::Get(iq4nl + 2, c)]);
}

void ConvertMxfp4ToQ5_0(const std::uint8_t* mxfp4, std::uint8_t* q5_0) {
  std::memset(q5_0, 0, kBytesQ5_0);
  StoreScale(ScaleMxfp4(mxfp4[0]), q5_0);
  for (int c = 0; c < 32; ++c) {
    const int level = kMxfp4Codebook[BitPlane<4, 16>::Get(mxfp4 + 1, c)] + 16;
    BitPlane<1, 1>::Set(q5_0 + 2, c, level >> 4);
    BitPlane<4, 16>::Set(q5_0 + 6, c, level);
  }
}

void ConvertIq4XsToQ8_0(const std::uint8_t* iq4xs, std::uint8_t* q8_0) {
  const float d = LoadHalf(iq4xs);
  for (int sub = 0; sub < 8; ++sub, q8_0 += kBytesQ8_0) {
    StoreScale(Scaled(d, ScaleIq4Xs(iq4xs, sub)), q8_0);
    for (int c = 0; c < 32; ++c) {
      const int level = BitPlane<4, 16>::Get(iq4xs + 8 + sub * 16, c);
      q8_0[2 + c] = static_cast<std::uint8_t>(kIq4Codebook[level]);
    }
  }
}

}  // namespace thermocline::kernels
