// Experts computed by neuron: neurons inside them are skipped as in a dense network.
//
//   one parallel loop over (expert, range of neurons): candidates, gate, up of the live ones, h;
//     the live ones' down rows are prefetched
//   one over ranges of output columns: each expert's sum, weighted and added, by ascending expert
// The order of the sums is that of a token alone, so its bits are the same. Experts of many tokens,
// and those of mode `dense`, are computed densely, one after the other.
#pragma once

#include "engine/ffn/expert_networks.h"
#include "engine/ffn/sparse_ffn.h"

namespace thermocline::ffn {

// Decode thread only. Borrows everything; allocates nothing after construction.
class NeuronExperts {
 public:
  NeuronExperts(const ExpertNetworks& networks, const FfnContext& context, int tokens_max);
  // Upper bound of the bytes that a construction with these sizes allocates.
  static std::size_t Bytes(const FfnSizes& sizes);

  // out [T, D] += weight times the expert's output, for each unit's tokens. Units are sorted by
  // ascending expert; the shared expert is not among them. Cannot fail, because no weights come
  // from flash.
  void Add(const FfnStep& step, std::span<const ExpertUnit> units, float* out);
  // The reads of the last Add, if it was of a single token.
  const FfnCounters& counts() const { return counts_; }

 private:
  // One of the experts whose neurons are found in the same loop.
  struct Slot {
    Slot(int neurons, int hidden, int tokens_max);
    const ExpertUnit* unit = nullptr;
    int network = 0;
    nn::ActivationBuffer tokens;  // [T, D] of the unit
    LiveNeurons live;
    std::vector<int> candidates;  // [ranges] number of candidates
    FoundNeurons found;
  };

  // The number of `units`, from the first on, that are computed in one loop; 0: the first is
  // computed densely.
  int BatchSize(FfnMode mode, std::span<const ExpertUnit> units) const;
  void AddWhole(const FfnStep& step, const ExpertUnit& unit, float* out);
  void AddBatch(const FfnStep& step, std::span<const ExpertUnit> units, float* out);
  // Copies the unit's tokens to consecutive rows.
  const nn::ActivationBuffer& Gather(const ExpertUnit& unit, const FfnInput& input,
                                     nn::ActivationBuffer& tokens) const;
  // The step of the slot's expert.
  FfnStep StepOf(const FfnStep& step, int slot) const;
  void FindRange(const FfnStep& step, int slot, int range, int thread);
  void Join(const FfnStep& step, int slot);
  void SumDown(int slots, float* out);
  // out of the unit's tokens += weight times y [n, D], for columns [begin, end).
  void AddWeighed(const ExpertUnit& unit, int begin, int end, float* out) const;

  const FfnContext context_;  // of the networks
  const int experts_;         // E
  SparseFfn whole_;
  CandidateFinder finder_;
  RangeComputer computer_;
  DownSum down_;
  std::vector<Slot> slots_;
  nn::ActivationBuffer tokens_;  // [T, D] of a unit that is computed densely
  std::vector<float> residual_;  // [T, D] of such a unit
  std::vector<float> y_;         // [T, D]
  FfnCounters counts_;
};

}  // namespace thermocline::ffn
