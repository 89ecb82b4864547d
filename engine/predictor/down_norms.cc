#include "engine/predictor/down_norms.h"

#include <cmath>

#include "kernels/quantize.h"

namespace thermocline::predictor {
namespace {

constexpr int kParts = 16;  // runs of rows, summed separately and then in order

// Adds the squares of rows [begin, end) of `down` [D, F] to `sums` [F].
void AddSquares(const kernels::PackedMatrix& down, int begin, int end, std::vector<double>& sums) {
  std::vector<float> row(down.cols);
  for (int r = begin; r < end; ++r) {
    kernels::DequantizePackedRow(down, r, row.data());
    for (std::size_t i = 0; i < row.size(); ++i) sums[i] += double{row[i]} * row[i];
  }
}

std::vector<float> RowNorms(const kernels::RowMatrix& rows, base::WorkerPool& pool) {
  std::vector<float> norms(rows.rows);
  pool.Run(rows.rows, [&](int r, int) {
    std::vector<float> row(rows.cols);
    kernels::DequantizeMatrixRow(rows, r, row.data());
    double sum = 0;
    for (const float value : row) sum += double{value} * value;
    norms[r] = static_cast<float>(std::sqrt(sum));
  });
  return norms;
}

}  // namespace

std::vector<float> DownNorms(const model::LayerWeights& layer, base::WorkerPool& pool) {
  if (layer.down_rows.rows > 0) return RowNorms(layer.down_rows, pool);
  const kernels::PackedMatrix& down = layer.down.weight;
  const std::size_t f = down.cols;
  std::vector<std::vector<double>> parts(kParts, std::vector<double>(f));
  pool.Run(kParts, [&](int part, int) {
    AddSquares(down, down.rows * part / kParts, down.rows * (part + 1) / kParts, parts[part]);
  });
  std::vector<float> norms(f);
  for (std::size_t i = 0; i < f; ++i) {
    double sum = 0;
    for (const auto& part : parts) sum += part[i];
    norms[i] = static_cast<float>(std::sqrt(sum));
  }
  return norms;
}

}  // namespace thermocline::predictor
