// The arithmetic of one range of neurons: products of selected rows, and selection of the live
// neurons.
#pragma once

#include "engine/ffn/ffn_context.h"
#include "engine/ffn/ffn_step.h"
#include "engine/ffn/neuron_list.h"

namespace thermocline::ffn {

// Called by any of the pool's threads, each with its number. Allocates nothing after construction.
class RangeComputer {
 public:
  // tokens_max: tokens of a step, kSparseTokensMax or fewer.
  RangeComputer(const FfnContext& context, int tokens_max);
  // Bytes that a construction with these sizes allocates.
  static std::size_t Bytes(const FfnSizes& sizes);

  // Multiplies the deciding rows of the candidates and keeps the neurons that are live for some
  // token: |act(gate)| is not zero and, in mode `threshold`, reaches the policy's shift. Valid
  // until the thread's next call.
  const GatedNeurons& Decide(const FfnStep& step, const NeuronRange& range,
                             const NeuronList& candidates, int thread);
  // h = act(gate) (up row . x), [T, kRange]; zero for tokens that do not need the neuron. Valid
  // until the thread's next call.
  const float* Finish(const FfnStep& step, const NeuronRange& range, const GatedNeurons& live,
                      int thread);

 private:
  // Buffers of one thread.
  struct Scratch {
    explicit Scratch(int tokens_max);
    GatedNeurons live;
    std::vector<float> act;  // [T, kRange] act(gate) of the candidates
    std::vector<float> up;   // [T, kRange] of the live
    std::vector<float> h;    // [T, kRange]
  };
  // Copies the candidates' gates, which the step already has, into s.live.
  void CopyGates(const FfnStep& step, const NeuronList& candidates, Scratch& s) const;
  // Keeps the candidates that are live for some token, in s.live. Requires: s.live has the gates of
  // all candidates.
  void KeepActive(const FfnStep& step, const NeuronList& candidates, Scratch& s) const;

  const FfnContext context_;
  std::vector<Scratch> scratch_;  // by thread
};

}  // namespace thermocline::ffn
