// Experts that are computed by neuron: what skips neurons in a dense network does it inside them.
//
//   one parallel loop over (expert, range of neurons): candidates, gate, up of the live ones, h;
//     the live ones' down rows are asked for
//   one over ranges of output columns: each expert's sum, weighed and added, by ascending expert
// The order of the sums is that of a token alone, so its bits are the same. Experts of many tokens,
// and those of mode `dense`, are computed whole, one after the other.
#pragma once

#include "engine/ffn/expert_networks.h"
#include "engine/ffn/sparse_ffn.h"

namespace thermocline::ffn {

// Decode thread only. Borrows everything; allocates nothing after construction.
class NeuronExperts {
 public:
  NeuronExperts(const ExpertNetworks& networks, const FfnContext& context, int tokens_max);
  // Bytes that a construction with these sizes allocates, at most.
  static std::size_t Bytes(const FfnSizes& sizes);

  // out [T, D] += weight times the expert's output, of each unit's tokens. Units by ascending
  // expert; none is the shared one. There are no errors: nothing comes from flash.
  void Add(const FfnStep& step, std::span<const ExpertUnit> units, float* out);
  // The reads of the last Add, if it was of a single token.
  const FfnCounters& counts() const { return counts_; }

 private:
  // An expert of those whose neurons are found in one loop.
  struct Slot {
    Slot(int neurons, int hidden, int tokens_max);
    const ExpertUnit* unit = nullptr;
    int network = 0;
    nn::ActivationBuffer tokens;  // [T, D] of the unit
    LiveNeurons live;
    std::vector<int> candidates;  // [ranges] how many
    FoundNeurons found;
  };

  // The number of `units`, from the first on, that are found in one loop; 0: the first is computed
  // whole.
  int Together(FfnMode mode, std::span<const ExpertUnit> units) const;
  void AddWhole(const FfnStep& step, const ExpertUnit& unit, float* out);
  void AddTogether(const FfnStep& step, std::span<const ExpertUnit> units, float* out);
  // The unit's tokens side by side.
  const nn::ActivationBuffer& Gather(const ExpertUnit& unit, const FfnInput& input,
                                     nn::ActivationBuffer& tokens) const;
  // The step of the slot's expert.
  FfnStep StepOf(const FfnStep& step, int slot) const;
  void FindRange(const FfnStep& step, int slot, int range, int thread);
  void Join(const FfnStep& step, int slot);
  void SumDown(int slots, float* out);
  // out of the unit's tokens += weight times y [n, D], of columns [begin, end).
  void AddWeighed(const ExpertUnit& unit, int begin, int end, float* out) const;

  const FfnContext context_;  // of the networks
  const int experts_;         // E
  SparseFfn whole_;
  CandidateFinder finder_;
  RangeComputer computer_;
  DownSum down_;
  std::vector<Slot> slots_;
  nn::ActivationBuffer tokens_;  // [T, D] of a unit that is computed whole
  std::vector<float> residual_;  // [T, D] of such a unit
  std::vector<float> y_;         // [T, D]
  FfnCounters counts_;
};

}  // namespace thermocline::ffn
