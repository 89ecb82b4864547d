// Counters of the rows that networks read in decoding steps. Tokens that share a step share the
// rows: a row that several tokens need is read, and counted, once.
#pragma once

#include "engine/api/ffn_stats.h"
#include "engine/ffn/ffn_context.h"
#include "engine/ffn/ffn_step.h"

namespace thermocline::ffn {

// Since the start.
struct FfnCounters {
  // Tokens that were decoded and kept (set only by Transformer::ffn_counters); steps; and the
  // tokens computed by these steps, including drafts and prefill tokens that shared them.
  std::int64_t tokens = 0, steps = 0, computed = 0;
  std::int64_t gate_rows = 0, up_rows = 0, down_rows = 0;
  std::int64_t predictor_bytes = 0, bytes = 0;  // bytes: all of the network's
  // Multiply-adds of the rows, and of a predictor; for the predictor, words of 32 signs count too.
  std::int64_t operations = 0, predictor_operations = 0;

  // Adds the counts of another side of the same layer; the steps are the same.
  FfnCounters& operator+=(const FfnCounters& other);
};

// Weight bytes of a layer's network; for experts, those that one token reads.
std::int64_t DenseBytes(const model::ModelConfig& config, const model::LayerWeights& layer);
// Weight bytes of the layer's dense network; 0 if it has none.
std::int64_t NetworkBytes(const model::LayerWeights& weights);
// The neurons of a layer's network; in a layer of experts, the neurons of one token's experts.
std::int64_t NeuronsOf(const model::ModelConfig& config, int layer);
// Multiply-adds of a layer's network per token.
std::int64_t DenseOperations(const model::ModelConfig& config, int layer);

// Sets `stats` to the counters, with the bytes and operations of dense steps for comparison; other
// members are not changed.
void SetFigures(const FfnCounters& counters, std::int64_t dense_bytes,
                std::int64_t dense_operations, FfnLayerStats& stats);

// A step's rows of one layer.
struct RowsRead {
  int tokens = 1;
  std::int64_t deciding = 0;  // gate rows; up rows if there is no gate
  std::int64_t up = 0;        // not counted if there is no gate
  std::int64_t down = 0;      // not counted if down is column-major: then all are read
  std::int64_t predictor_bytes = 0, predictor_operations = 0;
};
void AddRows(const FfnContext& context, int layer, const RowsRead& rows, FfnCounters& counters);

}  // namespace thermocline::ffn
