// What the networks of decoded tokens read.
#pragma once

#include "engine/api/ffn_stats.h"
#include "engine/ffn/ffn_context.h"
#include "engine/ffn/ffn_step.h"

namespace thermocline::ffn {

// Rows read by decoded tokens, since the start.
struct FfnCounters {
  std::int64_t tokens = 0, gate_rows = 0, up_rows = 0, down_rows = 0;
  std::int64_t predictor_bytes = 0, bytes = 0;  // bytes: all of the network's
  // Multiply-adds of the rows, and of a predictor; there also words of 32 signs.
  std::int64_t operations = 0, predictor_operations = 0;

  // Of another side of the same layer: its tokens are the same ones.
  FfnCounters& operator+=(const FfnCounters& other);
};

// Weight bytes of a layer's network; of experts, those that a token reads.
std::int64_t DenseBytes(const model::ModelConfig& config, const model::LayerWeights& layer);
// Multiply-adds of a layer's network for a token.
std::int64_t DenseOperations(const model::ModelConfig& config, int layer);

// The counters as figures, beside what dense tokens would have read; the other members stay.
void SetFigures(const FfnCounters& counters, std::int64_t dense_bytes,
                std::int64_t dense_operations, FfnLayerStats& stats);

// A token's rows of one layer.
struct RowsRead {
  std::int64_t deciding = 0;  // gate rows; up rows, where there is no gate
  std::int64_t up = 0;        // not counted where there is no gate
  std::int64_t down = 0;      // not counted where down lies in columns: then all are read
  std::int64_t predictor_bytes = 0, predictor_operations = 0;
};
void AddRows(const FfnContext& context, int layer, const RowsRead& rows, FfnCounters& counters);

}  // namespace thermocline::ffn
