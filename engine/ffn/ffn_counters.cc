#include "engine/ffn/ffn_counters.h"

#include <algorithm>

#include "engine/predictor/predictors.h"

namespace thermocline::ffn {
namespace {

template <typename Matrix>
std::int64_t RowBytes(const Matrix& m) {
  return static_cast<std::int64_t>(kernels::RowBytes(m.type, m.cols));
}

}  // namespace

std::int64_t DenseBytes(const model::ModelConfig& config, const model::LayerWeights& w) {
  return w.experts.bytes_per_step(config.experts.num_experts_per_tok) + NetworkBytes(w);
}

std::int64_t NetworkBytes(const model::LayerWeights& w) {
  return w.gate.linear.weight.bytes() + w.up.linear.weight.bytes() + w.down.weight.bytes() +
         w.down_rows.bytes();
}

std::int64_t NeuronsOf(const model::ModelConfig& config, int layer) {
  const model::ExpertConfig& e = config.experts;
  const std::int64_t network = config.NetworkSizeOf(layer);
  if (!e.InLayer(layer)) return network;
  return std::int64_t{e.num_experts_per_tok} * e.intermediate_size + e.shared_intermediate_size +
         (config.architecture->beside_experts ? network : 0);
}

std::int64_t DenseOperations(const model::ModelConfig& config, int layer) {
  const std::int64_t matrices = config.architecture->gated ? 3 : 2, d = config.hidden_size;
  const std::int64_t router = config.experts.InLayer(layer) ? d * config.experts.num_experts : 0;
  return matrices * d * NeuronsOf(config, layer) + router;
}

FfnCounters& FfnCounters::operator+=(const FfnCounters& other) {
  tokens = std::max(tokens, other.tokens);
  steps = std::max(steps, other.steps);
  computed = std::max(computed, other.computed);
  gate_rows += other.gate_rows;
  up_rows += other.up_rows;
  down_rows += other.down_rows;
  predictor_bytes += other.predictor_bytes;
  bytes += other.bytes;
  operations += other.operations;
  predictor_operations += other.predictor_operations;
  return *this;
}

void SetFigures(const FfnCounters& c, std::int64_t dense_bytes, std::int64_t dense_operations,
                FfnLayerStats& stats) {
  stats.tokens = c.tokens;
  stats.gate_rows = c.gate_rows;
  stats.up_rows = c.up_rows;
  stats.down_rows = c.down_rows;
  stats.bytes = c.bytes;
  stats.predictor_bytes = c.predictor_bytes;
  stats.operations = c.operations;
  stats.predictor_operations = c.predictor_operations;
  stats.steps = c.steps;
  stats.dense_bytes = c.steps * dense_bytes;
  stats.dense_operations = c.computed * dense_operations;
}

void AddRows(const FfnContext& context, int layer, const RowsRead& rows, FfnCounters& c) {
  const model::LayerWeights& w = context.layer(layer);
  const bool down_rows = w.down_rows.rows > 0;
  const std::int64_t up = context.gated() ? rows.up : 0;
  ++c.steps;
  c.computed += rows.tokens;
  c.gate_rows += rows.deciding;
  c.up_rows += up;
  const std::int64_t down = down_rows ? rows.down : context.config.NetworkSizeOf(layer);
  c.down_rows += down;
  c.predictor_bytes += rows.predictor_bytes;
  c.predictor_operations += rows.predictor_operations;
  c.operations += rows.tokens * (rows.deciding + up + down) * context.config.hidden_size;
  c.bytes += rows.predictor_bytes +
             rows.deciding * RowBytes(predictor::DecidingMatrix(w).linear.weight) +
             up * RowBytes(w.up.linear.weight) +
             (down_rows ? rows.down * RowBytes(w.down_rows)
                        : static_cast<std::int64_t>(w.down.weight.bytes()));
}

}  // namespace thermocline::ffn
