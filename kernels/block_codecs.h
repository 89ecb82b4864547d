// Block codecs: one block of a GGUF quantised type to floats, from floats, and to other types.
//
// A block holds 32 or 256 columns of one row. A column's *level* is a small unsigned integer;
// scales turn levels into weights x, in the weights' own unit. Sub-blocks are runs of 16 or 32
// columns with a scale of their own. Words "BxS" stand for BitPlane<B, S> below; f16 is
// little-endian.
//
//   type   bytes columns fields in order                                       weight
//   Q4_1    20   32      f16 d, f16 m, level 4x16                              d level + m
//   Q5_0    22   32      f16 d, high bit 1x1, low bits 4x16                    d (level - 16)
//   Q5_1    24   32      f16 d, f16 m, high bit 1x1, low bits 4x16             d level + m
//   IQ4_NL  18   32      f16 d, level 4x16                                     d codebook[level]
//   MXFP4   17   32      u8 e, level 4x16; d = 2^(e - 128)                     d codebook[level]
//   IQ4_XS 136   256/32  f16 d, u16 high bits 2x1, low bits 4x1 [4], then
//                        level 4x16 of each sub-block                          as symmetric
//   Q2_K    84   256/16  u8 scale | min << 4 [16], level 2x32, f16 d, f16 dmin affine
//   Q3_K   110   256/16  high bit 1x32, low bits 2x32, scales[12], f16 d       symmetric, z = 4
//   Q4_K   144   256/32  f16 d, f16 dmin, scales[12], level 4x32               affine
//   Q5_K   176   256/32  f16 d, f16 dmin, scales[12], high bit 1x32, low 4x32  affine
//   Q6_K   210   256/16  low bits 4x64, high bits 2x32, i8 scale[16], f16 d    symmetric, z = 32
//
//   TQ2_0   66  256      level 2x32, f16 d                                     d (level - 1)
//   TQ1_0   54  256      five base-3 digits of 32 and of 16 columns 1x32, 1x16,
//                        four of 4 columns 1x4, f16 d; DecodeTernary           d (digit - 1)
//
//   affine:       (d scale) level - (dmin min), scale and min unsigned: 4 bits in Q2_K, 6 bits in
//                 Q4_K and Q5_K, read by ScaleMinK4
//   symmetric:    (d scale) (level - z), scale signed: 6 bits less 32 in Q3_K, read by ScaleQ3K,
//                 and in IQ4_XS, read by ScaleIq4Xs, where codebook[level] is instead of level - z
//
// Source: the block formats of ggml's GGUF files.
#pragma once

#include <cmath>
#include <cstdint>

namespace thermocline::kernels {

// kBits bits of every column. kStride neighbouring columns lie in kStride neighbouring bytes; the
// next kStride columns take the next higher bits of the same bytes, until these are full.
template <int kBits, int kStride>
struct BitPlane {
  static constexpr int kPerByte = 8 / kBits;
  static constexpr int kMask = (1 << kBits) - 1;

  static constexpr int Byte(int column) {
    return column / (kStride * kPerByte) * kStride + column % kStride;
  }
  static constexpr int Shift(int column) { return column / kStride % kPerByte * kBits; }
  static int Get(const std::uint8_t* bytes, int column) {
    return (bytes[Byte(column)] >> Shift(column)) & kMask;
  }
  // Stores the lowest kBits of `value`. Requires: the column's bits are zero.
  static void Set(std::uint8_t* bytes, int column, int value) {
    bytes[Byte(column)] |= static_cast<std::uint8_t>((value & kMask) << Shift(column));
  }
};

inline constexpr int kBytesQ4_1 = 20;
inline constexpr int kBytesQ5_0 = 22;
inline constexpr int kBytesQ5_1 = 24;
inline constexpr int kBytesIq4Nl = 18;
inline constexpr int kBytesIq4Xs = 136;
inline constexpr int kBytesMxfp4 = 17;
inline constexpr int kBytesTq2 = 66;
inline constexpr int kBytesTq1 = 54;
inline constexpr int kBytesQ8_0 = 34;
inline constexpr int kBytesQ2K = 84;
inline constexpr int kBytesQ3K = 110;
inline constexpr int kBytesQ4K = 144;
inline constexpr int kBytesQ5K = 176;
inline constexpr int kBytesQ6K = 210;

// The values of the levels of IQ4_NL and IQ4_XS.
inline constexpr std::int8_t kIq4Codebook[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};
// The levels of MXFP4: twice the values that an E2M1 float has, so that they are integers.
inline constexpr std::int8_t kMxfp4Codebook[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                   0, -1, -2, -3, -4, -6, -8, -12};
inline float ScaleMxfp4(std::uint8_t e) { return std::ldexp(1.0F, e - 128); }

// Levels, scales and mins as stored, 0 <= column < the block's columns.
inline int LevelQ5(const std::uint8_t high[4], const std::uint8_t low[16], int column) {
  return BitPlane<4, 16>::Get(low, column) | BitPlane<1, 1>::Get(high, column) << 4;  // 0..31
}
inline int LevelQ2K(const std::uint8_t* block, int column) {
  return BitPlane<2, 32>::Get(block + 16, column);  // 0..3
}
inline int LevelQ3K(const std::uint8_t* block, int column) {
  return BitPlane<2, 32>::Get(block + 32, column) | BitPlane<1, 32>::Get(block, column) << 2;
}
inline int LevelQ4K(const std::uint8_t* block, int column) {
  return BitPlane<4, 32>::Get(block + 16, column);  // 0..15
}
inline int LevelQ5K(const std::uint8_t* block, int column) {
  return BitPlane<4, 32>::Get(block + 48, column) | BitPlane<1, 32>::Get(block + 16, column) << 4;
}
inline int LevelQ6K(const std::uint8_t* block, int column) {
  return BitPlane<4, 64>::Get(block, column) | BitPlane<2, 32>::Get(block + 128, column) << 4;
}
// Requires: the column's bits are zero.
inline void SetLevelQ6K(std::uint8_t* block, int column, int level) {
  BitPlane<4, 64>::Set(block, column, level);
  BitPlane<2, 32>::Set(block + 128, column, level >> 4);
}

struct ScaleAndMin {
  int scale, min;  // 0..63
};
// The scale and minimum of sub-block 0..7 in the scales of Q4_K and Q5_K. The first four scales and
// mins are the low six bits of bytes 0..3 and 4..7; of the others the low nibbles share bytes 8..11
// and the high two bits are on top of bytes 0..3 (scales) and 4..7 (mins).
ScaleAndMin ScaleMinK4(const std::uint8_t scales[12], int sub_block);

// The scale of sub-block 0..15 in the scales of Q3_K: low bits 4x8, then high bits 2x4; -32..31.
inline int ScaleQ3K(const std::uint8_t scales[12], int sub_block) {
  const int low = BitPlane<4, 8>::Get(scales, sub_block);
  return (low | BitPlane<2, 4>::Get(scales + 8, sub_block) << 4) - 32;
}

// The scale of sub-block 0..7 of IQ4_XS: -32..31.
inline int ScaleIq4Xs(const std::uint8_t* block, int sub_block) {
  const int low = BitPlane<4, 1>::Get(block + 4, sub_block);
  return (low | BitPlane<2, 1>::Get(block + 2, sub_block) << 4) - 32;
}

// One block to f32 [columns]: the bits of gguf.quants.dequantize, by the same products and sums.
void DequantizeQ5_0(const std::uint8_t* block, float* out);
void DequantizeQ5_1(const std::uint8_t* block, float* out);
void DequantizeIq4Nl(const std::uint8_t* block, float* out);
void DequantizeIq4Xs(const std::uint8_t* block, float* out);
void DequantizeMxfp4(const std::uint8_t* block, float* out);
void DequantizeTq2(const std::uint8_t* block, float* out);
void DequantizeQ2K(const std::uint8_t* block, float* out);
void DequantizeQ3K(const std::uint8_t* block, float* out);
void DequantizeQ4K(const std::uint8_t* block, float* out);
void DequantizeQ5K(const std::uint8_t* block, float* out);
void DequantizeQ6K(const std::uint8_t* block, float* out);

// The same weights, bit by bit, in a type that GPUs multiply.
void ConvertQ3KToQ6K(const std::uint8_t* q3k, std::uint8_t* q6k);
void ConvertIq4NlToQ8_0(const std::uint8_t* iq4nl, std::uint8_t* q8_0);
// Exact where 2^(e - 128) is an f16, 2^-24 to 2^15; beyond that the scale saturates.
void ConvertMxfp4ToQ5_0(const std::uint8_t* mxfp4, std::uint8_t* q5_0);
// Eight blocks.
void ConvertTq2ToQ4_0(const std::uint8_t* tq2, std::uint8_t* q4_0);
// The same ternary weights in two bits.
void ConvertTq1ToTq2(const std::uint8_t* tq1, std::uint8_t* tq2);
// Eight blocks; d times a scale is rounded to f16.
void ConvertIq4XsToQ8_0(const std::uint8_t* iq4xs, std::uint8_t* q8_0);

// Quantizes f32 [columns] to one block with nearly the least squared error, weighted by
// `importance` [columns] if given. Requires: finite x. Scales above the range of their type
// saturate, and those below it become zero, so the block is always finite.
void QuantizeQ4_0WithImportance(const float* x, std::uint8_t* block, const float* importance);
void QuantizeQ4_1(const float* x, std::uint8_t* block, const float* importance = nullptr);
void QuantizeQ5_0(const float* x, std::uint8_t* block, const float* importance = nullptr);
void QuantizeQ5_1(const float* x, std::uint8_t* block, const float* importance = nullptr);
// Ternary weights, d times -1, 0 or 1, are kept.
void QuantizeTq2(const float* x, std::uint8_t* block, const float* importance = nullptr);
void QuantizeQ2K(const float* x, std::uint8_t* block, const float* importance = nullptr);
void QuantizeQ3K(const float* x, std::uint8_t* block, const float* importance = nullptr);
void QuantizeQ4K(const float* x, std::uint8_t* block, const float* importance = nullptr);
void QuantizeQ5K(const float* x, std::uint8_t* block, const float* importance = nullptr);
void QuantizeQ6K(const float* x, std::uint8_t* block, const float* importance = nullptr);
void QuantizeIq4Nl(const float* x, std::uint8_t* block, const float* importance = nullptr);
void QuantizeIq4Xs(const float* x, std::uint8_t* block, const float* importance = nullptr);
void QuantizeMxfp4(const float* x, std::uint8_t* block, const float* importance = nullptr);

}  // namespace thermocline::kernels
