// An observer of every feed-forward network during prefill: `profile`, `calibrate` and
// `train-predictor` collect their data with it.
#pragma once

#include <span>

#include "engine/ffn/router.h"

namespace thermocline::ffn {

// One layer's network for T tokens. Borrowed for the call.
struct FfnSample {
  int layer = 0;
  int tokens = 0;                   // T
  const float* residual = nullptr;  // [T, D] before the norm
  const float* hidden = nullptr;    // [T, D] after the norm: the input of gate and up
  const float* gate = nullptr;      // [T, F] before the activation; of up, if there is no gate
  const float* neurons = nullptr;   // [T, F] act(gate) * up: zero = the neuron is not active
};

class FfnTap {
 public:
  virtual ~FfnTap() = default;
  // Called on the thread that runs Transformer::Forward, layer by layer.
  virtual void OnLayer(const FfnSample& sample) = 0;
  // The same for layers of experts: [T, K] the experts each token chose.
  virtual void OnExperts(int /*layer*/, std::span<const ChosenExpert> /*chosen*/, int /*tokens*/) {}
};

}  // namespace thermocline::ffn
