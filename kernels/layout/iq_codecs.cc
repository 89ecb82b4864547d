#include "kernels/iq_codecs.h"

#include <bit>

#include "kernels/layout/iq_grids.h"
#include "kernels/layout/panel_view.h"

namespace thermocline::kernels {
namespace {

constexpr float kIq2Magnitudes[4] = {8, 25, 43, 0};
constexpr float kIq3XxsMagnitudes[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr float kIq3SMagnitudes[8] = {1, 3, 5, 7, 9, 11, 13, 15};

// Signs of eight columns whose last makes their number even.
unsigned WithParity(unsigned seven) {
  return seven | static_cast<unsigned>(std::popcount(seven) & 1) << 7;
}

// `count` columns of a point whose values have `bits` bits, with the lowest signs.
void PutPoint(unsigned point, int count, int bits, const float* magnitudes, unsigned signs,
              float scale, float* out) {
  const unsigned mask = (1U << bits) - 1;
  for (int i = 0; i < count; ++i) {
    const float magnitude = magnitudes[(point >> (bits * i)) & mask];
    out[i] = scale * magnitude * ((signs >> i) & 1 ? -1.0F : 1.0F);
  }
}

int Nibble(const std::uint8_t* bytes, int i) { return bytes[i / 2] >> (i % 2 * 4) & 15; }

float HalfStep(float d, int scale) { return d * (0.5F + static_cast<float>(scale)); }

float LoadD(const std::uint8_t* block) { return HalfToFloat(Load16(block)); }

}  // namespace

void DequantizeIq2Xxs(const std::uint8_t* block, float* out) {
  const float d = LoadD(block);
  for (int group = 0; group < 8; ++group) {
    const std::uint8_t* points = block + 2 + 8 * group;
    const std::uint32_t word = Load32(points + 4);
    const float scale = HalfStep(d, static_cast<int>(word >> 28)) * 0.25F;
    for (int i = 0; i < 4; ++i)
      PutPoint(kIq2XxsGrid[points[i]], 8, 2, kIq2Magnitudes, WithParity((word >> (7 * i)) & 127),
               scale, out + 32 * group + 8 * i);
  }
}

void DequantizeIq2Xs(const std::uint8_t* block, float* out) {
  const float d = LoadD(block);
  for (int i = 0; i < 32; ++i) {
    const unsigned word = Load16(block + 2 + 2 * i);
    const float scale = HalfStep(d, Nibble(block + 66, i / 2)) * 0.25F;
    PutPoint(kIq2XsGrid[word & 511], 8, 2, kIq2Magnitudes, WithParity(word >> 9), scale,
             out + 8 * i);
  }
}

void DequantizeIq2S(const std::uint8_t* block, float* out) {
  const float d = LoadD(block);
  for (int i = 0; i < 32; ++i) {
    const unsigned high = (block[66 + i / 4] >> (i % 4 * 2)) & 3U;
    const float scale = HalfStep(d, Nibble(block + 74, i / 2)) * 0.25F;
    PutPoint(kIq2SGrid[block[2 + i] | high << 8], 8, 2, kIq2Magnitudes, block[34 + i], scale,
             out + 8 * i);
  }
}

void DequantizeIq3Xxs(const std::uint8_t* block, float* out) {
  const float d = LoadD(block);
  for (int group = 0; group < 8; ++group) {
    const std::uint32_t word = Load32(block + 66 + 4 * group);
    const float scale = HalfStep(d, static_cast<int>(word >> 28)) * 0.5F;
    for (int i = 0; i < 8; ++i) {
      const unsigned signs = WithParity((word >> (7 * (i / 2))) & 127) >> (i % 2 * 4);
      PutPoint(kIq3XxsGrid[block[2 + 8 * group + i]], 4, 3, kIq3XxsMagnitudes, signs, scale,
               out + 32 * group + 4 * i);
    }
  }
}

void DequantizeIq3S(const std::uint8_t* block, float* out) {
  const float d = LoadD(block);
  for (int i = 0; i < 64; ++i) {
    const unsigned ninth = (block[66 + i / 8] >> (i % 8)) & 1U;
    const float scale = Scaled(d, 1 + 2 * Nibble(block + 106, i / 8));
    const unsigned signs = static_cast<unsigned>(block[74 + i / 2]) >> (i % 2 * 4);
    PutPoint(kIq3SGrid[block[2 + i] | ninth << 8], 4, 3, kIq3SMagnitudes, signs, scale,
             out + 4 * i);
  }
}

}  // namespace thermocline::kernels
