// Computes every neuron of a layer by products of whole matrices: for prefill, dense layers and
// taps.
#pragma once

#include "engine/ffn/ffn_context.h"
#include "engine/ffn/ffn_step.h"
#include "engine/ffn/ffn_tap.h"
#include "engine/ffn/live_neurons.h"

namespace thermocline::ffn {

// Decode thread only. Allocates nothing after construction, except in SetTap.
class AllNeurons {
 public:
  AllNeurons(const FfnContext& context, int tokens_max);
  // Bytes that a construction with these sizes allocates.
  static std::size_t Bytes(const FfnSizes& sizes);

  // Computes h of all members, by place, into the first columns of `h` [T, F].
  FoundNeurons Compute(int layer, const FfnInput& input, nn::ActivationBuffer& h);

  // `tap` receives every network computed here; null: none. Requires: no members.
  void SetTap(FfnTap* tap);
  bool tapped() const { return tap_ != nullptr; }

 private:
  // Multiplies the deciding rows into `gates` and up's rows into up_.
  void MultiplyRows(int layer, const FfnInput& input, float* gates);

  const FfnContext context_;
  const int tokens_max_;
  std::vector<int> ids_;            // [F] 0, 1, 2, ...
  std::vector<float> up_;           // [T, F]
  std::vector<float> tapped_gate_;  // [T, F] while there is a tap, as h's buffer holds the gates
                                    // first
  FfnTap* tap_ = nullptr;
};

}  // namespace thermocline::ffn
