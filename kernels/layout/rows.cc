// Rows in and out of panels.
#include "kernels/rows.h"

#include <cstring>
#include <vector>

#include "kernels/layout/row_layout.h"

namespace thermocline::kernels {
namespace {

// Copies between one lane of a panel's block and a row, in the direction that `kToPanel` gives.
template <bool kToPanel>
void Move(std::uint8_t* panel, std::uint8_t* row, int bytes) {
  if (kToPanel) {
    std::memcpy(panel, row, bytes);
  } else {
    std::memcpy(row, panel, bytes);
  }
}

template <bool kToPanel>
void MoveGroups(DType type, int lane, int cols, std::uint8_t* panel, std::uint8_t* row) {
  const RowLayout layout = RowLayoutOf(type);
  const std::ptrdiff_t block_bytes = PanelBytes(type, layout.block);
  ForRowGroups(type, cols, [&](const RowGroup& group) {
    std::uint8_t* from = row + group.row_offset;
    std::uint8_t* to = panel + group.panel_offset;
    for (int number = 0; number < layout.numbers; ++number) {
      const int at = (number * kPanelRows + lane) * layout.number_bytes;
      for (int b = 0; b < group.blocks; ++b, from += layout.number_bytes)
        Move<kToPanel>(to + b * block_bytes + at, from, layout.number_bytes);
    }
    for (int b = 0; b < group.blocks; ++b) {
      for (int w = 0; w < layout.words; ++w, from += 4)
        Move<kToPanel>(to + b * block_bytes + layout.panel_header() + w * kQuadBytes + 4 * lane,
                       from, 4);
    }
  });
}

template <bool kToPanel>
void MoveQ6K(int lane, int cols, std::uint8_t* panel, std::uint8_t* row) {
  for (int b = 0; b < cols / 256; ++b, panel += PanelBytes(DType::kQ6_K, 256)) {
    for (int w = 0; w < kQ6KWords; ++w, row += 4)
      Move<kToPanel>(panel + 288 + w * kQuadBytes + 4 * lane, row, 4);
    for (int sub = 0; sub < 16; ++sub, ++row)
      Move<kToPanel>(panel + 32 + sub * kPanelRows + lane, row, 1);
    Move<kToPanel>(panel + 2 * lane, row, 2);
    row += 2;
  }
}

template <bool kToPanel>
void MoveRow(DType type, int lane, int cols, std::uint8_t* panel, std::uint8_t* row) {
  if (type == DType::kQ6_K) return MoveQ6K<kToPanel>(lane, cols, panel, row);
  if (Traits(type).quantized) return MoveGroups<kToPanel>(type, lane, cols, panel, row);
  const int bytes = Traits(type).block_bytes;
  for (int c = 0; c < cols; ++c, row += bytes)
    Move<kToPanel>(panel + StartOf(c, bytes) * kPanelRows + lane * bytes, row, bytes);
}

}  // namespace

void PackRows(DType type, const std::uint8_t* rows, int num_rows, int cols, std::uint8_t* out) {
  if (!Traits(type).quantized) {
    std::memcpy(out, rows, num_rows * RowBytes(type, cols));
    return;
  }
  thread_local std::vector<std::uint8_t> panel;
  panel.resize(PanelBytes(type, cols));
  PackPanel(type, rows, num_rows, cols, panel.data());
  for (int r = 0; r < num_rows; ++r)
    MoveRow<false>(type, r, cols, panel.data(), out + r * RowBytes(type, cols));
}

void RowsFromPanel(DType type, const std::uint8_t* panel, int cols, std::uint8_t* rows) {
  for (int r = 0; r < kPanelRows; ++r)
    MoveRow<false>(type, r, cols, const_cast<std::uint8_t*>(panel),
                   rows + r * RowBytes(type, cols));
}

void PanelFromRows(DType type, const std::uint8_t* rows, int cols, std::uint8_t* panel) {
  for (int r = 0; r < kPanelRows; ++r)
    MoveRow<true>(type, r, cols, panel, const_cast<std::uint8_t*>(rows) + r * RowBytes(type, cols));
}

void LaneFromRow(DType type, const std::uint8_t* row, int cols, int lane, std::uint8_t* panel) {
  MoveRow<true>(type, lane, cols, panel, const_cast<std::uint8_t*>(row));
}

void DequantizeMatrixRow(const RowMatrix& matrix, int row, float* out) {
  std::vector<std::uint8_t> panel(PanelBytes(matrix.type, matrix.cols));
  LaneFromRow(matrix.type, matrix.row(row), matrix.cols, 0, panel.data());
  DequantizePackedRow({matrix.type, 1, matrix.cols, panel.data()}, 0, out);
}

}  // namespace thermocline::kernels
