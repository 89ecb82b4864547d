// The results of a layer's ranges: the live neurons and their h, by range while threads write, then
// together for the sum over down rows.
#pragma once

#include "engine/ffn/neuron_list.h"

namespace thermocline::ffn {

// A layer's neurons that the sum over down rows adds up. Borrows them.
struct FoundNeurons {
  std::span<const int> ids;  // ascending
  float* h = nullptr;        // [T, ids], rows `stride` apart
  int stride = 0;
  bool skip_zeros = false;  // rows whose h is zero need not be read: some tokens lack some neurons
};

// Each range from one thread at a time. Allocates nothing after construction.
class LiveNeurons {
 public:
  // neurons: F; tokens_max: of a step; range: neurons of a range.
  LiveNeurons(int neurons, int tokens_max, int range = kRange);
  // Bytes that a construction with these sizes allocates.
  static std::size_t Bytes(int neurons, int tokens_max, int range = kRange);

  // The range's live neurons; h [T, kRange].
  void Put(const NeuronRange& range, const NeuronList& live, const float* h, int tokens);

  // The same in parts: all neurons that may live, then any of them that do.
  void Expect(const NeuronRange& range, const NeuronList& candidates, int tokens);
  void Add(const NeuronRange& range, const NeuronList& live, const float* h, int tokens);

  // The neurons of all ranges whose h is not zero for some token, until the next Join.
  // Requires: the first `ranges` were put.
  // keep_zeros: all neurons, too, whose h is zero; their rows must be in memory.
  FoundNeurons Join(int ranges, int tokens, bool keep_zeros = false);
  // Neurons put, those whose h came out as zero among them. Of the last Join.
  int num_live() const { return num_live_; }

 private:
  struct Count {
    int listed = 0;  // ids of the range
    int live = 0;    // of them
  };
  float* Row(std::vector<float>& h, int token, int place) const;

  const int neurons_;              // F
  const int range_;                // neurons of a range
  std::vector<int> ids_;           // [F] by place: a range's are its first `listed`
  std::vector<float> h_;           // [T, F] of ids_
  std::vector<Count> counts_;      // [ranges]
  std::vector<int> together_ids_;  // [F]
  std::vector<float> together_h_;  // [T, F]
  int num_live_ = 0;
};

}  // namespace thermocline::ffn
