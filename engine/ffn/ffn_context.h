// The objects shared by all parts of a network: the model, its kernels and threads. Borrowed.
#pragma once

#include <algorithm>

#include "engine/api/ablation.h"
#include "engine/ffn/ffn_step.h"
#include "engine/ffn/neuron_ranges.h"
#include "engine/nn/multiplier.h"

namespace thermocline::ffn {

// The kernels' enumerator for an activation.
kernels::GateActivation GateOf(model::Activation activation);

// The sizes that determine the buffers of a network's parts.
struct FfnSizes {
  const model::ModelConfig& config;
  int tokens_max;  // T of a step
  int threads;
  bool sign = false;   // predicted by signs
  int rank = 0;        // of the largest low-rank predictor; 0: none
  bool flash = false;  // some neurons may be on flash
  bool deciding_held = true;
  bool expert_rows = false;  // NeuronExperts computes a mixture's experts

  int neurons() const { return config.intermediate_size; }
  int sparse_tokens() const { return std::min(tokens_max, kSparseTokensMax); }
};

struct FfnContext {
  const model::ModelConfig& config;
  const model::Weights& weights;
  const kernels::OpTable& ops;
  base::WorkerPool& pool;
  nn::Multiplier& multiplier;
  NeuronRanges ranges;
  Ablation ablation = {};

  const model::LayerWeights& layer(int index) const { return weights.layers[index]; }
  bool gated() const { return config.architecture->gated; }
  // params.out = act(gate) * up, with the activation of the layer.
  void Activate(int layer, kernels::GatedParams params) const;
  // The same for experts, whose activation has no parameters of a layer.
  void Activate(kernels::GatedParams params) const;
  // Calls body(range, thread) for each range of the layer, in parallel.
  template <typename Body>
  void ForRanges(int layer, const Body& body) const {
    pool.Run(ranges.NumRanges(layer),
             [&](int index, int thread) { body(ranges.Of(layer, index), thread); });
  }
};

}  // namespace thermocline::ffn
