// Quantising activations and rows, packing rows into panels, and reading single rows back.
//
// Activations, per block of 32: scale = max|x| / 127, q = round to nearest even (x * (127 /
// max|x|)).
#pragma once

#include "kernels/types.h"

namespace thermocline::kernels {

// Blocks whose largest value is at most this become zeros: 127 / max would not be finite.
inline constexpr float kActivationMin = 1e-30F;

struct QuantizeParams {
  const float* x = nullptr;          // [n] f32
  int n = 0;                         // a multiple of 32
  std::int8_t* q = nullptr;          // [n]
  float* scale = nullptr;            // [n / 32]
  float* scaled_sum = nullptr;       // [n / 32]
  std::int32_t* sum = nullptr;       // [n / 32]
  std::int32_t* half_sum = nullptr;  // [n / 32]
  std::int32_t* pair_sum = nullptr;  // [n / 32, 2] pairs of words (kernels/types.h)
};

// One row between GGUF's row-major blocks and floats. Requires: n a multiple of the type's block
// size.
void DequantizeRow(DType type, const std::uint8_t* row, int n, float* out);
// `importance` [n] or null: the mean square of each column's inputs; more important columns are
// rounded with less error. Floats, Q8_0 and TQ2_0 ignore it.
void QuantizeRow(DType type, const float* x, int n, std::uint8_t* row,
                 const float* importance = nullptr);

// The type in which GPUs hold rows of `type`: the type itself if they have kernels for it; Q6_K for
// Q3_K, Q8_0 for IQ4_NL and Q5_0 for MXFP4 (without loss), Q6_K for Q2_K and Q8_0 for IQ4_XS
// (rounded again).
DType DeviceType(DType type);
// One row of `from` as a row of `to`. Requires: n a multiple of both block sizes.
void ConvertRow(DType from, const std::uint8_t* row, int n, DType to, std::uint8_t* out);
// True if every weight keeps its value, as far as its scale is a finite f16.
bool ConvertsExactly(DType from, DType to);

// Index of the first block of a row whose scale is NaN or infinite, -1 if there is none; for float
// types the first such element.
int FindNonFiniteBlock(DType type, const std::uint8_t* row, int n);

// Packs up to 16 GGUF rows (row i at `rows + i * RowBytes`) into one panel; absent rows become
// zeros.
void PackPanel(DType type, const std::uint8_t* rows, int num_rows, int cols, std::uint8_t* panel);

// Row `row` of a packed matrix as floats: the embedding lookup.
void DequantizePackedRow(const PackedMatrix& matrix, int row, float* out);

float HalfToFloat(std::uint16_t half);
std::uint16_t FloatToHalf(float value);  // round to nearest even
float BfloatToFloat(std::uint16_t value);
std::uint16_t FloatToBfloat(float value);  // round to nearest even

}  // namespace thermocline::kernels
