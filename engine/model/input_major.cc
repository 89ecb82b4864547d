#include "engine/model/input_major.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/model/turn_matrix.h"

namespace thermocline::model {
namespace {

constexpr std::size_t kRowAlignment = 64;  // of a matrix's first row
constexpr double kFiveBits = 5;            // of a weight with its scales: below, four or less

int OutputsOf(const std::vector<const Linear*>& matrices) {
  int outputs = 0;
  for (const Linear* matrix : matrices) outputs += matrix->weight.rows;
  return outputs;
}

// Of the copies, without data; of no rows where there is nothing to copy.
kernels::RowMatrix ShapeOf(const LayerWeights& layer, InputKind kind) {
  const auto matrices = MatricesOf(layer, kind);
  if (matrices.empty()) return {};
  const int outputs = OutputsOf(matrices);
  if (outputs % kernels::kActivationBlock != 0) return {};
  const kernels::PackedMatrix& first = matrices.front()->weight;
  const auto bytes = static_cast<double>(kernels::RowBytes(first.type, first.cols));
  return {
      .type = 8 * bytes / first.cols < kFiveBits ? kernels::DType::kQ4_0 : kernels::DType::kQ8_0,
      .rows = first.cols,
      .cols = outputs};
}

// Bounds of the scales that quantising `values` gives. Source: both types divide a block's largest
// |value| (by 8, by 127), and round the quotient to f16.
std::vector<float> ScalesMax(const kernels::RowMatrix& matrix, const std::vector<float>& values,
                             base::WorkerPool& pool) {
  constexpr int kBlock = kernels::kActivationBlock;
  const float divisor = matrix.type == kernels::DType::kQ4_0 ? 8 : 127;
  std::vector<float> most(matrix.cols / kBlock);
  pool.Run(base::IntSize(most), [&](int block, int) {
    float largest = 0;
    for (int j = 0; j < matrix.rows; ++j) {
      const float* at = &values[base::Area(j, matrix.cols) + base::Area(block, kBlock)];
      for (int c = 0; c < kBlock; ++c) largest = std::max(largest, std::fabs(at[c]));
    }
    most[block] = largest / divisor * 1.001F;
  });
  return most;
}

std::size_t AlignedBytes(const kernels::RowMatrix& matrix) {
  return (matrix.bytes() + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

template <typename Visit>
void ForKinds(const Weights& weights, const Visit& visit) {
  for (std::size_t l = 0; l < weights.layers.size(); ++l) {
    for (int kind = 0; kind < kInputKinds; ++kind) visit(l, static_cast<InputKind>(kind));
  }
}

}  // namespace

std::vector<const Linear*> MatricesOf(const LayerWeights& layer, InputKind kind) {
  std::vector<const Linear*> all;
  switch (kind) {
    case InputKind::kAttention:
      all = {&layer.q, &layer.k, &layer.v};
      break;
    case InputKind::kAttnOutput:
      all = {&layer.attn_output};
      break;
    case InputKind::kFfn:
      all = {&layer.gate.linear, &layer.up.linear};
      break;
    case InputKind::kDown:
      all = {&layer.down};
      break;
  }
  std::erase_if(all, [](const Linear* matrix) { return matrix->weight.rows == 0; });
  return all;
}

int InputsOf(const LayerWeights& layer, InputKind kind) {
  const auto matrices = MatricesOf(layer, kind);
  return matrices.empty() ? layer.down_rows.rows : matrices.front()->weight.cols;
}

std::size_t InputMajorBytes(const Weights& weights) {
  std::size_t bytes = 0;
  ForKinds(weights, [&](std::size_t l, InputKind kind) {
    bytes += AlignedBytes(ShapeOf(weights.layers[l], kind));
  });
  return bytes;
}

Result<InputMajor> MakeInputMajor(const Weights& weights, base::WorkerPool& pool) {
  InputMajor out;
  ASSIGN_OR_RETURN(out.memory, base::HugeBuffer::Allocate(InputMajorBytes(weights)));
  out.layers.resize(weights.layers.size());
  auto* at = reinterpret_cast<std::uint8_t*>(out.memory.data());
  std::vector<float> values;
  ForKinds(weights, [&](std::size_t l, InputKind kind) {
    const LayerWeights& layer = weights.layers[l];
    InputMatrix& copy = out.layers[l][static_cast<std::size_t>(kind)];
    kernels::RowMatrix& to = copy.rows;
    to = ShapeOf(layer, kind);
    if (to.rows == 0) return;
    to.data = at;
    at += AlignedBytes(to);
    values.resize(base::Area(to.rows, to.cols));
    int first = 0;
    for (const Linear* matrix : MatricesOf(layer, kind)) {
      TurnMatrix(matrix->weight, first, to.cols, pool, values);
      first += matrix->weight.rows;
    }
    PackTurned(to, values, pool);
    copy.scales_max = ScalesMax(to, values, pool);
  });
  return out;
}

}  // namespace thermocline::model
