// Element types, and how weights and activations lie in memory for the kernels.
//
// A weight matrix [rows, cols] is cut into panels of 16 rows. Inside a panel the same column of all
// 16 rows lies together, so that one vector lane is one output row: no horizontal sums, no tails
// over columns, and every output is one chain of sums in column order, whatever the ISA, the number
// of tokens or the number of threads. Rows are padded with zeros to a full panel.
//
// Panel layouts, for each block of columns in order (r = row in panel, 0..15). A *quad* is
// u8[16][4]: four neighbouring columns of the 16 rows, one 64-byte vector.
//   F32, F16, BF16  block of 1 column:   w[16]
//   Q8_0            block of 32 columns: f16 d[16]; 8 quads = q + 128 (columns 4i..4i+3)
//   nibbles         4 quads: low nibbles are columns 4i..4i+3, high nibbles columns 16+4i..16+4i+3
//   fifth bits      1 quad: bit i of byte j belongs to column 4i+j
//   Q4_0            block of 32 columns: f16 d[16]; nibbles; value = nibble - 8
//   Q4_1            block of 32 columns: f16 d[16], m[16]; nibbles; value = nibble
//   Q5_0            as Q4_0 with fifth bits before the nibbles; value = level - 16
//   Q5_1            as Q4_1 with fifth bits before the nibbles
//   IQ4_NL          as Q4_0; value = codebook[nibble]
//   MXFP4           block of 32 columns: u8 e[16], d = 2^(e - 128); nibbles; value as IQ4_NL's
//   Q4_K            block of 256 columns: f16 d[16], dmin[16]; six-bit numbers u32[3][16]; then the
//                   nibbles of each of the 8 sub-blocks of 32 columns
//   Q5_K            as Q4_K with fifth bits before the nibbles of each sub-block
//   six-bit numbers k = 0..7 scale of sub-block k, 8..15 minimum of sub-block k - 8: number k < 15
//                   in bits 6(k % 5) of word k / 5, number 15 in the words' two highest bits
//   IQ4_XS          block of 256 columns: f16 d[16], u16 h[16], u32 w[16]; then the nibbles of each
//                   of the 8 sub-blocks of 32 columns; value = codebook[nibble]. Scales of the
//                   sub-blocks plus 32: k < 5 in bits 6k of w, 5 and 6 in bits 6(k - 5) of h, 7 in
//                   the highest two bits of w and, above them, the highest four of h
//   Q6_K            block of 256 columns: f16 d[16], i8 scale[16 sub-blocks][16], then for each
//                   sub-block of 16 columns: 2 quads of nibbles (columns 8i+0..3 low, 8i+4..7 high)
//                   and 1 quad of high bits (bits 2j of byte i: column 4j+i); value = level - 32
//   Q2_K            block of 256 columns: f16 d[16], dmin[16]; 4 quads = scale | minimum << 4 of
//                   sub-blocks 4i..4i+3; then for each sub-block of 16 columns 1 quad (bits 2j of
//                   byte i: column 4j+i)
//   Q3_K            block of 256 columns: f16 d[16]; six-bit numbers, k = scale of sub-block k plus
//                   32; then for each 32 columns 3 quads, whose bits 0..2 are columns 0..3, 8..11
//                   and 16..19, bits 3..5 columns 4..7, 12..15 and 20..23, and bits 6..7 the low
//                   two bits of columns 24..27, of 28..31, and both's third bits; value = level - 4
//   TQ2_0           block of 256 columns: f16 d[16]; the quads of Q2_K; value = level - 1
// Codebooks: kernels/block_codecs.h.
// A panel has the bytes of its 16 rows in GGUF.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/type_table.h"

namespace thermocline::kernels {

inline constexpr int kPanelRows = 16;
inline constexpr int kQuadBytes = 4 * kPanelRows;
inline constexpr int kActivationBlock = 32;

// The offset of row `row` in a matrix whose rows are `stride` apart.
THERMOCLINE_HOST_DEVICE inline constexpr std::ptrdiff_t StartOf(std::ptrdiff_t row,
                                                                std::ptrdiff_t stride) {
  return row * stride;
}
// The value of a level that counts in steps of `scale`.
THERMOCLINE_HOST_DEVICE inline constexpr float Scaled(float scale, int level) {
  return scale * static_cast<float>(level);
}

inline constexpr int NumPanels(int rows) { return (rows + kPanelRows - 1) / kPanelRows; }
// Bytes of one row. Requires: cols a multiple of the block size.
inline constexpr std::size_t RowBytes(DType type, int cols) {
  const std::size_t blocks = cols / Traits(type).block_size;
  return blocks * Traits(type).block_bytes;
}
inline constexpr std::size_t PanelBytes(DType type, int cols) {
  return kPanelRows * RowBytes(type, cols);
}
inline constexpr std::size_t PackedBytes(DType type, int rows, int cols) {
  return NumPanels(rows) * PanelBytes(type, cols);
}

// A weight matrix in panels. Borrows its bytes.
struct PackedMatrix {
  DType type = DType::kF32;
  int rows = 0;
  int cols = 0;
  const std::uint8_t* data = nullptr;

  const std::uint8_t* panel(int index) const { return data + index * PanelBytes(type, cols); }
  std::size_t bytes() const { return PackedBytes(type, rows, cols); }
};

// Activations of T tokens, each [cols]: floats, and their Q8 form for quantised weights.
// x = scale[b] * q in blocks of 32.
struct Activations {
  const float* x = nullptr;                // [T, cols] f32
  const std::int8_t* q = nullptr;          // [T, cols]
  const float* scale = nullptr;            // [T, cols / 32]
  const float* scaled_sum = nullptr;       // [T, cols / 32] scale times the sum of the block's q
  const std::int32_t* sum = nullptr;       // [T, cols / 32] sum of the block's q
  const std::int32_t* half_sum = nullptr;  // [T, cols / 32] sum of the first 16 of them
  // [T, cols / 32, 2] of 16 columns each, two words: the sum of columns 0 and 1 of every four,
  // above it that of columns 2 and 3. The CPU's.
  const std::int32_t* pair_sum = nullptr;
  int cols = 0;
};

}  // namespace thermocline::kernels
