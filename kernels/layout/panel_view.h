// Single elements of a panel (layouts in kernels/types.h), for everything that need not be fast.
#pragma once

#include <cstring>

#include "kernels/block_codecs.h"
#include "kernels/quantize.h"
#include "kernels/types.h"

namespace thermocline::kernels {

inline std::uint16_t Load16(const std::uint8_t* p) {
  std::uint16_t value;
  std::memcpy(&value, p, 2);
  return value;
}
inline std::uint32_t Load32(const std::uint8_t* p) {
  std::uint32_t value;
  std::memcpy(&value, p, 4);
  return value;
}
inline void Store32(std::uint8_t* p, std::uint32_t value) { std::memcpy(p, &value, 4); }

inline constexpr const PanelLayout& LayoutOf(DType type) { return Traits(type).panel; }

inline constexpr bool IsBlockOf256(DType type) { return Traits(type).block_size == 256; }
// Scales are of 16 columns, not of 32.
inline constexpr bool HasHalves(DType type) { return LayoutOf(type).halves; }
// Levels are two bits, four quads in one.
inline constexpr bool HasTwoBits(DType type) { return LayoutOf(type).two_bits; }
// Values take all of a signed byte.
inline constexpr bool IsWide(DType type) { return LayoutOf(type).offset == 128; }

// Levels of the sixteen nibbles of a type with a codebook.
struct CodebookLevels {
  std::uint8_t of[16];
};
inline constexpr bool HasCodebook(DType type) { return LayoutOf(type).codebook; }
inline constexpr CodebookLevels LevelsOf(DType type, int offset) {
  const std::int8_t* values = type == DType::kMXFP4 ? kMxfp4Codebook : kIq4Codebook;
  CodebookLevels levels{};
  for (int i = 0; i < 16; ++i) levels.of[i] = static_cast<std::uint8_t>(values[i] + offset);
  return levels;
}

// Level of column `col` of row `lane` in a block; `block` is the panel's block.
inline int PanelLevel(DType type, const std::uint8_t* block, int lane, int col) {
  const PanelLayout layout = LayoutOf(type);
  const std::uint8_t* group = block + layout.header + col / 32 * layout.group_bytes;
  const int c = col % 32, byte = lane * 4 + c % 4;
  if (type == DType::kQ8_0) return group[c / 4 * kQuadBytes + byte];
  if (type == DType::kQ6_K) {
    const std::uint8_t* sub = group + c / 16 * 192;
    const int low = sub[c % 16 / 8 * kQuadBytes + byte], high = sub[2 * kQuadBytes + byte];
    return (c % 8 < 4 ? low & 15 : low >> 4) | ((high >> (c % 16 / 4 * 2)) & 3) << 4;
  }
  if (HasTwoBits(type)) return (group[c / 16 * kQuadBytes + byte] >> (c % 16 / 4 * 2)) & 3;
  if (type == DType::kQ3_K) {
    if (c < 24) return (group[c / 8 * kQuadBytes + byte] >> (c % 8 / 4 * 3)) & 7;
    const int last = (c - 24) / 4, third = (group[2 * kQuadBytes + byte] >> (6 + last)) & 1;
    return group[last * kQuadBytes + byte] >> 6 | third << 2;
  }
  const int fifth = layout.fifth_bits != 0 ? (group[byte] >> (c / 4)) & 1 : 0;
  const std::uint8_t* low = group + layout.fifth_bits * kQuadBytes + byte;
  const int nibbles = low[c % 16 / 4 * kQuadBytes], nibble = c < 16 ? nibbles & 15 : nibbles >> 4;
  if (HasCodebook(type)) return LevelsOf(type, layout.offset).of[nibble];
  return nibble | fifth << 4;
}

// Six-bit number `k` (0..15) of row `lane`; `words` is u32[3][16].
inline int SixBitNumber(const std::uint8_t* words, int lane, int k) {
  const auto word = [&](int w) { return Load32(words + w * kQuadBytes + lane * 4); };
  if (k == 15) return word(0) >> 30 | (word(1) >> 30) << 2 | (word(2) >> 30) << 4;
  return (word(k / 5) >> (6 * (k % 5))) & 63;
}

// Scale of sub-block `k` (0..7) of IQ4_XS.
inline int PanelScaleIq4Xs(const std::uint8_t* block, int lane, int k) {
  const std::uint32_t word = Load32(block + 64 + 4 * lane), half = Load16(block + 32 + 2 * lane);
  if (k == 7) return (word >> 30 | half >> 12 << 2) - 32;
  return ((k < 5 ? word >> (6 * k) : half >> (6 * (k - 5))) & 63) - 32;
}

// The numbers of sub-block `k` of a block of 256 columns: of 32 columns, or of 16 (HasHalves).
inline ScaleAndMin PanelNumbers(DType type, const std::uint8_t* block, int lane, int k) {
  switch (type) {
    case DType::kQ6_K:
      return {static_cast<std::int8_t>(block[32 + k * kPanelRows + lane]), 0};
    case DType::kQ2_K: {
      const int both = block[64 + k / 4 * kQuadBytes + lane * 4 + k % 4];
      return {both & 15, both >> 4};
    }
    case DType::kQ3_K:
      return {SixBitNumber(block + 32, lane, k) - 32, 0};
    case DType::kIQ4_XS:
      return {PanelScaleIq4Xs(block, lane, k), 0};
    case DType::kTQ2_0:
      return {1, 0};
    default:
      return {SixBitNumber(block + 64, lane, k), SixBitNumber(block + 64, lane, 8 + k)};
  }
}

inline float PanelHalf(const std::uint8_t* block, int at, int lane) {
  return HalfToFloat(Load16(block + at + 2 * lane));
}
// d of a block.
inline float PanelScale(DType type, const std::uint8_t* block, int lane) {
  return type == DType::kMXFP4 ? ScaleMxfp4(block[lane]) : PanelHalf(block, 0, lane);
}

}  // namespace thermocline::kernels
