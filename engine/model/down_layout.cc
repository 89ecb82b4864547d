#include "engine/model/down_layout.h"

#include <algorithm>
#include <vector>

#include "engine/base/index.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

constexpr int kPanelRows = kernels::kPanelRows;

// values [F, D], a neuron's weights together. Rows of one panel are turned together: a cache line
// of every neuron.
void ReadTurned(const kernels::PackedMatrix& down, base::WorkerPool& pool,
                std::vector<float>& values) {
  pool.Run(kernels::NumPanels(down.rows), [&](int panel, int) {
    thread_local std::vector<float> rows;
    rows.resize(base::Area(kPanelRows, down.cols));
    const int first = panel * kPanelRows, count = std::min(kPanelRows, down.rows - first);
    for (int r = 0; r < count; ++r)
      kernels::DequantizePackedRow(down, first + r, &rows[base::Area(r, down.cols)]);
    for (int neuron = 0; neuron < down.cols; ++neuron) {
      float* out = &values[base::Area(neuron, down.rows) + first];
      for (int r = 0; r < count; ++r) out[r] = rows[base::Area(r, down.cols) + neuron];
    }
  });
}

void WriteRows(const kernels::RowMatrix& matrix, const std::vector<float>& values,
               base::WorkerPool& pool) {
  const std::size_t row_bytes = kernels::RowBytes(matrix.type, matrix.cols);
  auto* out = const_cast<std::uint8_t*>(matrix.data);
  pool.Run(kernels::NumPanels(matrix.rows), [&](int panel, int) {
    thread_local std::vector<std::uint8_t> rows;
    rows.resize(kPanelRows * row_bytes);
    const int first = panel * kPanelRows, count = std::min(kPanelRows, matrix.rows - first);
    for (int r = 0; r < count; ++r)
      kernels::QuantizeRow(matrix.type, &values[base::Area(first + r, matrix.cols)], matrix.cols,
                           &rows[r * row_bytes]);
    kernels::PackRows(matrix.type, rows.data(), count, matrix.cols, out + first * row_bytes);
  });
}

}  // namespace

Status CanTurnDown(const LayerWeights& layer) {
  const kernels::PackedMatrix& down = layer.down.weight;
  if (layer.down_rows.rows > 0) return base::FailedPrecondition("it is neuron-major");
  if (down.data == nullptr) return base::FailedPrecondition("it is not in memory as a whole");
  const kernels::DTypeTraits& traits = kernels::Traits(down.type);
  if (!kernels::CanSumRows(down.type) || down.rows % traits.block_size != 0)
    return base::FailedPrecondition(
        "rows of ", down.rows, " weights of type ", traits.name,
        " cannot be added up; `thermocline convert --down rows` makes them q8_0 or f16");
  return OkStatus();
}

bool TurnsDownExactly(const LayerWeights& layer) {
  return !kernels::Traits(layer.down.weight.type).quantized;
}

void TurnDown(LayerWeights& layer, base::WorkerPool& pool) {
  CHECK(CanTurnDown(layer).ok());
  const kernels::PackedMatrix down = layer.down.weight;
  std::vector<float> values(base::Area(down.rows, down.cols));
  ReadTurned(down, pool, values);
  layer.down_rows = {.type = down.type, .rows = down.cols, .cols = down.rows, .data = down.data};
  WriteRows(layer.down_rows, values, pool);
  layer.down.weight = {};
}

std::size_t TurnDownBytes(const LayerWeights& layer) {
  const kernels::PackedMatrix& down = layer.down.weight;
  return base::Area(down.rows, down.cols) * sizeof(float);
}

}  // namespace thermocline::model
