// Experts as dense networks of their own, where their down rows are neuron-major: what skips
// neurons in a dense network (sparse_ffn.h) then skips them inside an expert.
//
// Expert e of layer l is layer l E + e of a model whose networks have f neurons.
#pragma once

#include "engine/ffn/sparse_ffn.h"

namespace thermocline::ffn {

// Const after it is made. Borrows the weights.
struct ExpertNetworks {
  model::ModelConfig config;
  model::Weights weights;            // no memory of its own
  predictor::Predictors predictors;  // of the same layers; signs, or nothing

  // Beside the weights and signs: of one expert.
  static constexpr std::size_t kBytesEach =
      sizeof(model::LayerWeights) + sizeof(predictor::LayerPredictors);
  // The config of the networks of `mixture`.
  static model::ModelConfig ConfigOf(const model::ModelConfig& mixture);
  // Of a mixture whose experts have down_rows.
  ExpertNetworks(const model::ModelConfig& mixture, const model::Weights& all);
};

// Computes them for the tokens that chose them. Decode thread only. Borrows everything; allocates
// nothing after construction.
class NeuronExperts {
 public:
  NeuronExperts(const ExpertNetworks& networks, const FfnContext& context, int tokens_max);
  // Bytes that a construction with these sizes allocates, at most.
  static std::size_t Bytes(const FfnSizes& sizes);

  // out [T, D] += weight times the expert's output, of each token of the unit. `policy` is the
  // layer's. There are no errors: nothing comes from flash.
  void Add(int layer, const ExpertUnit& unit, const FfnInput& input, const FfnPolicy& policy,
           bool lossless, float* out);
  // What the last Add read, if it was of a single token.
  const FfnCounters& counts() const { return counts_; }

 private:
  FfnInput Gather(const ExpertUnit& unit, const FfnInput& input);

  const FfnContext context_;
  const int experts_;  // E
  SparseFfn ffn_;
  nn::ActivationBuffer tokens_;  // [T, D] of a unit
  std::vector<float> residual_;  // [T, D]
  std::vector<float> y_;         // [T, D]
  FfnCounters counts_;
};

}  // namespace thermocline::ffn
