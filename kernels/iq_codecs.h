// GGUF's types that choose points of a grid: to floats.
//
// A block holds 256 columns of one row; a point is 8 neighbouring columns' (IQ2) or 4 columns'
// (IQ3) magnitudes, with a sign for each column. No kernel multiplies them as they are stored: rows
// are held as another type (model/held_types.h).
//
//   type    bytes fields in order                                                   magnitudes
//   IQ2_XXS  66   f16 d, then for 32 columns: 4 points u8, u32 = 4 signs of 7 bits,
//                 scale of 4                                                        8, 25, 43
//   IQ2_XS   74   f16 d, u16 = point of 9 bits, sign of 7 [32], 4-bit scales of 16 columns [16]
//   IQ2_S    82   f16 d, points u8 [32], signs u8 [32], their points' high 2 bits [8], scales as XS
//   IQ3_XXS  98   f16 d, points u8 [64], then u32 for 32 columns as IQ2_XXS         4, .. 52, 62
//   IQ3_S   110   f16 d, points u8 [64], their ninth bits [8], signs u8 [32],
//                 4-bit scales of 32 columns [8]                                    1, 3, .. 15
//
//   weight = scale magnitude sign
//   scale  = d (s + 1/2) / 4 (IQ2), d (s + 1/2) / 2 (IQ3_XXS), d (2 s + 1) (IQ3_S)
//
// Signs of 7 bits have an eighth that makes the number of negative signs even.
//
// Source: the block formats of ggml's GGUF files.
#pragma once

#include <cstdint>

namespace thermocline::kernels {

inline constexpr int kBytesIq2Xxs = 66;
inline constexpr int kBytesIq2Xs = 74;
inline constexpr int kBytesIq2S = 82;
inline constexpr int kBytesIq3Xxs = 98;
inline constexpr int kBytesIq3S = 110;

// One block to f32 [256]: the bits of gguf.quants.dequantize.
void DequantizeIq2Xxs(const std::uint8_t* block, float* out);
void DequantizeIq2Xs(const std::uint8_t* block, float* out);
void DequantizeIq2S(const std::uint8_t* block, float* out);
void DequantizeIq3Xxs(const std::uint8_t* block, float* out);
void DequantizeIq3S(const std::uint8_t* block, float* out);

}  // namespace thermocline::kernels
