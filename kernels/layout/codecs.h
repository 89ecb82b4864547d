// The functions that make and read the blocks of each type.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/types.h"

namespace thermocline::kernels {

struct Codec {
  DType type;
  // Conversions of a block into floats, and of floats into a block. `importance`: the mean
  // square of each column's inputs (quantize.h), or nullptr.
  void (*dequantize)(const std::uint8_t* block, float* out);
  void (*quantize)(const float* x, std::uint8_t* block, const float* importance);
  // Writes one row's block to its lane of the panel's block.
  void (*pack)(DType type, const std::uint8_t* block, int lane, std::uint8_t* out);
  std::array<int, 2> halves;  // offsets of its f16 scales, -1 = none
};
const Codec& CodecOf(DType type);

// As Codec::pack.
void PackFloat(DType type, const std::uint8_t* block, int lane, std::uint8_t* out);
void PackQ8_0(DType type, const std::uint8_t* block, int lane, std::uint8_t* out);
void PackBlock32(DType type, const std::uint8_t* block, int lane, std::uint8_t* out);
void PackQ4KOrQ5K(DType type, const std::uint8_t* block, int lane, std::uint8_t* out);
void PackQ6K(DType type, const std::uint8_t* block, int lane, std::uint8_t* out);
void PackQ2K(DType type, const std::uint8_t* block, int lane, std::uint8_t* out);
void PackQ3K(DType type, const std::uint8_t* block, int lane, std::uint8_t* out);
void PackTq2(DType type, const std::uint8_t* block, int lane, std::uint8_t* out);
void PackIq4Xs(DType type, const std::uint8_t* block, int lane, std::uint8_t* out);

}  // namespace thermocline::kernels
