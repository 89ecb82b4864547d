// Feed-forward networks with a model's types and shapes but arbitrary weights. Calibration runs
// them before the model is loaded, or if it is larger than memory.
#pragma once

#include <memory>
#include <vector>

#include "engine/base/huge_buffer.h"
#include "engine/model/model_config.h"
#include "engine/model/weights/weights.h"
#include "engine/predictor/predictors.h"

namespace thermocline::load {

// The points that calibration measures: shares of live neurons, in modes that select rows.
inline constexpr double kLiveFew = 0.03, kLiveMany = 0.25;
inline constexpr float kNothingLive = 1e30F;  // a threshold for |act(gate)| that no neuron reaches

struct NetworkTypes {
  kernels::DType gate = kernels::DType::kQ8_0;  // ignored if the architecture has no gate
  kernels::DType up = kernels::DType::kQ8_0;
  kernels::DType down = kernels::DType::kQ8_0;   // of the down rows
  kernels::DType dense = kernels::DType::kQ8_0;  // of attention
  std::size_t dense_bytes = 0;                   // of attention, per layer
};

// Const after construction.
struct SyntheticNetwork {
  model::ModelConfig config;                 // the model's, with the layers that exist here
  model::Weights weights;                    // gate, up, down_rows in rows
  std::vector<kernels::PackedMatrix> dense;  // [L] of [.., D]: the matrix read before each network
  predictor::Predictors predictors;          // sign
  base::HugeBuffer memory;
};

// Makes as many layers as take `bytes`, at least one, at most the model's. ResourceExhausted: no
// memory. Requires: types that the kernels support.
Result<std::unique_ptr<SyntheticNetwork>> MakeSyntheticNetwork(const model::ModelConfig& model,
                                                               const NetworkTypes& types,
                                                               std::size_t bytes);

}  // namespace thermocline::load
