#include "engine/nn/multiplier.h"

#include <algorithm>

#include "engine/nn/offset.h"

namespace thermocline::nn {
namespace {

// Weight bytes of a work item: large enough that scheduling costs nothing, small enough that
// threads finish together.
constexpr int kItemBytes = 96 << 10;
// For many tokens: panels that share the cached activations, and minimum items per thread.
constexpr int kPanelsTogether = 8, kItemsPerThread = 8;

int PanelsPerItem(const kernels::PackedMatrix& matrix, int tokens, int threads) {
  if (tokens > kPanelsTogether) {
    return std::clamp(kernels::NumPanels(matrix.rows) / (threads * kItemsPerThread), 1,
                      kPanelsTogether);
  }
  const auto bytes = static_cast<int>(kernels::PanelBytes(matrix.type, matrix.cols));
  return std::max(1, kItemBytes / bytes);
}

}  // namespace

Multiplier::Multiplier(const kernels::OpTable& ops, base::WorkerPool& pool,
                       std::size_t scratch_bytes)
    : ops_(ops), pool_(pool), scratch_(pool.threads(), std::vector<std::uint8_t>(scratch_bytes)) {}

void Multiplier::Multiply(std::span<const Product> products, const kernels::Activations& input,
                          int tokens, bool fold) {
  if (tap_ != nullptr) {
    for (const Product& product : products)
      tap_->OnProduct(product.linear->weight, input.x, tokens);
  }
  const auto panels_per_item = [&](const kernels::PackedMatrix& matrix) {
    return PanelsPerItem(matrix, tokens, pool_.threads());
  };
  const auto num_items = [&](const kernels::PackedMatrix& matrix) {
    const int per_item = panels_per_item(matrix);
    return (kernels::NumPanels(matrix.rows) + per_item - 1) / per_item;
  };
  int items = 0;
  for (const Product& product : products) items += num_items(product.linear->weight);
  const int reduced = updates_ != nullptr && !fold ? updates_->Begin(products, input, tokens) : 0;
  pool_.Run(items + reduced, [&](int item, int thread) {
    if (item < reduced) return updates_->Reduce(item);
    item -= reduced;
    for (const Product& product : products) {
      const kernels::PackedMatrix& matrix = product.linear->weight;
      const int product_items = num_items(matrix), per_item = panels_per_item(matrix);
      if (item < product_items) {
        return MultiplyPanels(product, input, tokens, fold, item * per_item,
                              std::min(kernels::NumPanels(matrix.rows), (item + 1) * per_item),
                              thread);
      }
      item -= product_items;
    }
  });
  if (reduced > 0) updates_->End();
}

void Multiplier::MultiplyPanels(const Product& product, const kernels::Activations& input,
                                int tokens, bool fold, int panel_begin, int panel_end, int thread) {
  const kernels::PackedMatrix& matrix = product.linear->weight;
  const int row = panel_begin * kernels::kPanelRows;
  const int rows = std::min(matrix.rows, panel_end * kernels::kPanelRows) - row;
  if (product.in_rows != nullptr) {
    ops_.gemm_rows({.weights = product.in_rows->rows(),
                    .first = row,
                    .count = rows,
                    .activations = input,
                    .tokens = tokens,
                    .out = product.out + row,
                    .out_stride = matrix.rows,
                    .scratch = scratch(thread)});
  } else {
    ops_.gemm({.weights = matrix,
               .activations = input,
               .tokens = tokens,
               .out = product.out,
               .out_stride = matrix.rows,
               .panel_begin = panel_begin,
               .panel_end = panel_end,
               .prefetch_bytes = prefetch_bytes_});
  }
  const int results = fold ? tokens / 2 : tokens;
  for (int t = 0; t < results; ++t) {
    float* out = product.out + Offset(t, matrix.rows) + row;
    if (fold) ops_.add(out, out + Offset(results, matrix.rows), rows);
    if (product.linear->bias != nullptr) ops_.add(out, product.linear->bias + row, rows);
  }
}

std::size_t PanelScratchBytes(const model::Weights& weights) {
  std::size_t bytes = 0;
  for (const model::LayerWeights& layer : weights.layers) {
    for (const model::NeuronMatrix* matrix : {&layer.gate, &layer.up}) {
      const kernels::PackedMatrix& weight = matrix->linear.weight;
      bytes = std::max(bytes, kernels::RowScratchBytes(weight.type, weight.cols));
    }
    for (const model::Linear* all : {&layer.experts.gate, &layer.experts.up})
      bytes = std::max(bytes, kernels::RowScratchBytes(all->weight.type, all->weight.cols));
  }
  return bytes;
}

std::size_t PanelScratchBytesMax(const model::ModelConfig& config) {
  return kernels::RowScratchBytes(kernels::DType::kF32, config.hidden_size);
}

void QuantizeToken(const kernels::OpTable& ops, ActivationBuffer& buffer, int token) {
  if (buffer.cols % kernels::kActivationBlock != 0) return;  // no quantised matrix has such rows
  QuantizeRange(ops, buffer, Offset(token, buffer.cols), buffer.cols);
}

void QuantizeRange(const kernels::OpTable& ops, ActivationBuffer& buffer, std::ptrdiff_t at,
                   int n) {
  const std::ptrdiff_t block = at / kernels::kActivationBlock;
  ops.quantize({.x = buffer.x.data() + at,
                .n = n,
                .q = buffer.q.data() + at,
                .scale = buffer.scale.data() + block,
                .scaled_sum = buffer.scaled_sum.data() + block,
                .sum = buffer.sum.data() + block,
                .half_sum = buffer.half_sum.data() + block,
                .pair_sum = buffer.pair_sum.data() + 2 * block});
}

}  // namespace thermocline::nn
