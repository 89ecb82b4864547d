#include "engine/model/weights/turn_matrix.h"

#include <algorithm>

#include "engine/base/index.h"
#include "kernels/quantize.h"

namespace thermocline::model {

void TurnMatrix(const kernels::PackedMatrix& matrix, int first, int outputs, base::WorkerPool& pool,
                std::vector<float>& values) {
  pool.Run(kernels::NumPanels(matrix.rows), [&](int panel, int) {
    thread_local std::vector<float> rows;
    rows.resize(base::Area(kernels::kPanelRows, matrix.cols));
    const int begin = panel * kernels::kPanelRows,
              count = std::min(kernels::kPanelRows, matrix.rows - begin);
    for (int r = 0; r < count; ++r)
      kernels::DequantizePackedRow(matrix, begin + r, &rows[base::Area(r, matrix.cols)]);
    for (int input = 0; input < matrix.cols; ++input) {
      float* out = &values[base::Area(input, outputs) + first + begin];
      for (int r = 0; r < count; ++r) out[r] = rows[base::Area(r, matrix.cols) + input];
    }
  });
}

void PackTurned(const kernels::RowMatrix& to, const std::vector<float>& values,
                base::WorkerPool& pool) {
  const std::size_t row_bytes = kernels::RowBytes(to.type, to.cols);
  auto* out = const_cast<std::uint8_t*>(to.data);
  pool.Run(kernels::NumPanels(to.rows), [&](int panel, int) {
    thread_local std::vector<std::uint8_t> rows;
    rows.resize(kernels::kPanelRows * row_bytes);
    const int first = panel * kernels::kPanelRows,
              count = std::min(kernels::kPanelRows, to.rows - first);
    for (int r = 0; r < count; ++r)
      kernels::QuantizeRow(to.type, &values[base::Area(first + r, to.cols)], to.cols,
                           &rows[r * row_bytes]);
    kernels::PackRows(to.type, rows.data(), count, to.cols, out + first * row_bytes);
  });
}

}  // namespace thermocline::model
