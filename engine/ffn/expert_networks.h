// Experts as separate dense networks, if their down rows are neuron-major: the code that skips
// neurons in a dense network (sparse_ffn.h) then skips them inside an expert.
//
// Expert e of layer l is layer l E + e of a model whose networks have f neurons.
#pragma once

#include "engine/ffn/sparse_ffn.h"

namespace thermocline::ffn {

// Const after construction. Borrows the weights.
struct ExpertNetworks {
  model::ModelConfig config;
  model::Weights weights;            // no memory of its own
  predictor::Predictors predictors;  // sign predictors of the same layers, or none

  // Additional bytes per expert, beside the weights and signs.
  static constexpr std::size_t kBytesEach =
      sizeof(model::LayerWeights) + sizeof(predictor::LayerPredictors);
  // The config of the networks of `mixture`.
  static model::ModelConfig ConfigOf(const model::ModelConfig& mixture);
  // Requires: a mixture whose experts have down_rows.
  ExpertNetworks(const model::ModelConfig& mixture, const model::Weights& all);
};

}  // namespace thermocline::ffn
