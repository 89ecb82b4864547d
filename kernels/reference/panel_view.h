// Single elements of a panel (layouts in kernels/types.h), for everything that need not be fast.
#pragma once

#include <cstring>

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

// Where a quantised type keeps what, in a panel's block. Bytes; -1 = the type has none.
struct PanelLayout {
  int offset;       // a level's value is level - offset
  int min;          // f16 m[16] or dmin[16]
  int header;       // scales, before the levels
  int fifth_bits;   // 1 if each 32 columns' nibbles follow a quad of fifth bits
  int group_bytes;  // levels of 32 columns
};
inline constexpr PanelLayout LayoutOf(DType type) {
  switch (type) {
    case DType::kQ8_0:
      return {128, -1, 32, 0, 512};
    case DType::kQ4_0:
      return {8, -1, 32, 0, 256};
    case DType::kQ4_1:
      return {0, 32, 64, 0, 256};
    case DType::kQ5_0:
      return {16, -1, 32, 1, 320};
    case DType::kQ5_1:
      return {0, 32, 64, 1, 320};
    case DType::kQ4_K:
      return {0, 32, 256, 0, 256};
    case DType::kQ5_K:
      return {0, 32, 256, 1, 320};
    default:
      return {32, -1, 288, 0, 384};  // Q6_K: two sub-blocks of 16 columns
  }
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
  const int nibbles = group[layout.fifth_bits * kQuadBytes + c % 16 / 4 * kQuadBytes + byte];
  const int fifth = layout.fifth_bits != 0 ? (group[byte] >> (c / 4)) & 1 : 0;
  return (c < 16 ? nibbles & 15 : nibbles >> 4) | fifth << 4;
}

// Six-bit number `k` (0..15) of row `lane`; `words` is u32[3][16].
inline int SixBitNumber(const std::uint8_t* words, int lane, int k) {
  const auto word = [&](int w) { return Load32(words + w * kQuadBytes + lane * 4); };
  if (k == 15) return static_cast<int>(word(0) >> 30 | (word(1) >> 30) << 2 | (word(2) >> 30) << 4);
  return static_cast<int>((word(k / 5) >> (6 * (k % 5))) & 63);
}

inline float PanelHalf(const std::uint8_t* block, int at, int lane) {
  return HalfToFloat(Load16(block + at + 2 * lane));
}

}  // namespace thermocline::kernels
