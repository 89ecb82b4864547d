// Weight matrices of which only some rows are read: each row's bytes lie together.
//
// A row holds the data of one lane of a panel (kernels/types.h), as little-endian words. For each
// group of columns in order:
//   blocks of 32              group of k = 8 blocks (fewer at the row's end): f16 d[k] (MXFP4: u8
//                             e[k]), f16 m[k] if the type has one, then each block's words: word j
//                             is the row's word of quad j of the panel's block
//   Q4_K Q5_K IQ4_XS Q2_K     group of one block: f16 d, f16 dmin (IQ4_XS: u16 h), the words of the
//                             panel's quads
//   Q3_K TQ2_0                group of one block: f16 d, the words of the panel's quads
//   Q6_K                      group of one block: the words of the quads, i8 scale[16], f16 d
//   F32 F16 BF16              the elements in order
// A row has the bytes of the GGUF row. So sixteen rows from anywhere become a panel by transposing
// words, and the product of a row has the same bits in both layouts.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace thermocline::kernels {

// Borrows its bytes. Rows are consecutive, or at the addresses in `where`.
struct RowMatrix {
  DType type = DType::kF32;
  int rows = 0;
  int cols = 0;
  const std::uint8_t* data = nullptr;
  const std::uint8_t* const* where = nullptr;  // [rows] or null; row i is at where[i] + ahead
  std::size_t ahead = 0;                       // bytes

  const std::uint8_t* row(int index) const {
    if (where != nullptr) return where[index] + ahead;
    return data + index * RowBytes(type, cols);
  }
  std::size_t bytes() const { return rows * RowBytes(type, cols); }
};

// Packs up to 16 GGUF rows (row i at `rows + i * RowBytes`) into rows of a RowMatrix at `out`.
void PackRows(DType type, const std::uint8_t* rows, int num_rows, int cols, std::uint8_t* out);

// Conversions of a panel into its sixteen rows, and of sixteen rows into a panel.
void RowsFromPanel(DType type, const std::uint8_t* panel, int cols, std::uint8_t* rows);
void PanelFromRows(DType type, const std::uint8_t* rows, int cols, std::uint8_t* panel);

// Row `row` as floats.
void DequantizeMatrixRow(const RowMatrix& matrix, int row, float* out);

// Panels of rows that are multiplied together, and their scratch memory.
inline constexpr int kRowPanels = 2;
inline constexpr std::size_t RowScratchBytes(DType type, int cols) {
  return kRowPanels * PanelBytes(type, cols);
}

// out[t, k] = sum_c W[ids[k], c] * x[t, c], with the bits of gemm.h.
struct GemmRowsParams {
  RowMatrix weights;         // [rows, cols]
  const int* ids = nullptr;  // [count] rows to multiply; null = first, first + 1, ...
  int first = 0;
  int count = 0;
  Activations activations;  // [tokens, cols]
  int tokens = 0;           // T
  float* out = nullptr;     // [T, count] f32, rows out_stride apart
  int out_stride = 0;
  std::uint8_t* scratch = nullptr;  // RowScratchBytes(weights.type, cols) bytes of this thread
};

// Neurons whose contributions are added up with one common scale (below).
inline constexpr int kSumChunk = 1024;
// A call of SumRows must begin at a multiple of this many columns.
inline constexpr int kSumColumns = 256;

struct SharedSum;  // shared_sum.h

// The largest coefficient: 127 * 256, so that its bytes are a signed high and a signed low one.
inline constexpr float kCoefficientMax = 32512;

// y[t, c] = sum_k h[t, k] * W[ids[k], c]: the down projection over neuron-major rows.
//
// Float types: acc = fma(h[t, k], w, acc) in the order of k.
// Quantised types, for each run of rows [1024 i, 1024 (i + 1)) in order and each block of 32
// columns: a row's weights there are a * level + m, with a and m of the row's block. With
// s = max_k |h_k * a_k| / 32512, the coefficients h_k * a_k are rounded to q_k = round(h_k * a_k /
// s), 16 bits, and y = fma(s, sum_k q_k * (level - offset), y), the sum in integers, exact in any
// order: an absent row is a row with h = 0, to the bit. Minimums: M = fma(h_k, m_k, M) in the order
// of k, then y = y + M.
struct SumRowsParams {
  RowMatrix weights;         // [F, D], of a type that CanSumRows
  const int* ids = nullptr;  // [count] ascending
  int count = 0;
  const float* h = nullptr;  // [T, count] rows h_stride apart
  int h_stride = 0;
  int tokens = 0;           // T
  bool skip_zeros = false;  // do not read rows whose h is zero
  int col_begin = 0;
  int col_end = 0;
  float* out = nullptr;  // [T, D], rows out_stride apart; columns [col_begin, col_end) are set
  int out_stride = 0;
  std::uint8_t* scratch = nullptr;    // SumScratchBytes(col_end - col_begin) of this thread
  const SharedSum* shared = nullptr;  // not null: a part of the sum (quantised types), not `out`
};

// F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, TQ2_0.
inline constexpr bool CanSumRows(DType type) { return Traits(type).summable; }
// `type`, or the nearest with such a kernel, rounded again, whose blocks divide rows of `cols`
// weights: Q4_0 for TQ2_0, Q8_0 for the others, F16 where neither fits.
DType SummableType(DType type, std::int64_t cols);
std::size_t SumScratchBytes(int columns);

}  // namespace thermocline::kernels
