// Feed-forward networks of a model's types and shapes with weights that mean nothing: what
// calibration runs, before the model is loaded or where it is larger than memory.
#pragma once

#include <memory>
#include <vector>

#include "engine/base/huge_buffer.h"
#include "engine/model/model_config.h"
#include "engine/model/weights.h"
#include "engine/predictor/predictors.h"

namespace thermocline::load {

// The points that calibration measures: shares of the neurons that are live, where rows are chosen.
inline constexpr double kLiveFew = 0.03, kLiveMany = 0.25;
inline constexpr float kNothingLive = 1e30F;  // |act(gate)| at least

struct NetworkTypes {
  kernels::DType gate = kernels::DType::kQ8_0;  // not read if the architecture has no gate
  kernels::DType up = kernels::DType::kQ8_0;
  kernels::DType down = kernels::DType::kQ8_0;   // of the down rows
  kernels::DType dense = kernels::DType::kQ8_0;  // of attention
  std::size_t dense_bytes = 0;                   // of attention, of a layer
};

// Const after it is made.
struct SyntheticNetwork {
  model::ModelConfig config;                 // the model's, with the layers that are here
  model::Weights weights;                    // gate, up, down_rows in rows
  std::vector<kernels::PackedMatrix> dense;  // [L] of [.., D]: what is read before each network
  predictor::Predictors predictors;          // sign
  base::HugeBuffer memory;
};

// As many layers as take `bytes`, at least one, at most the model's. ResourceExhausted without
// memory. Requires: types that the kernels have.
Result<std::unique_ptr<SyntheticNetwork>> MakeSyntheticNetwork(const model::ModelConfig& model,
                                                               const NetworkTypes& types,
                                                               std::size_t bytes);

}  // namespace thermocline::load
