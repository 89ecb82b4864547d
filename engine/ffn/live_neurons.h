// The results of a layer's ranges: the live neurons and their h, by range while threads write, then
// joined for the sum over down rows.
#pragma once

#include "engine/ffn/neuron_list.h"

namespace thermocline::ffn {

// The neurons of a layer whose down rows are summed. Borrowed.
struct FoundNeurons {
  std::span<const int> ids;  // ascending
  float* h = nullptr;        // [T, ids], rows `stride` apart
  int stride = 0;
  bool skip_zeros = false;  // rows with h = 0 need not be read: some tokens lack some neurons
};

// Each range is used by one thread at a time. Allocates nothing after construction.
class LiveNeurons {
 public:
  // neurons: F; tokens_max: of a step; range: neurons of a range.
  LiveNeurons(int neurons, int tokens_max, int range = kRange);
  // Bytes that a construction with these sizes allocates.
  static std::size_t Bytes(int neurons, int tokens_max, int range = kRange);

  // Stores the range's live neurons; h [T, kRange].
  void Put(const NeuronRange& range, const NeuronList& live, const float* h, int tokens);

  // The same in parts: Expect takes all candidates, then Add those of them that are live.
  void Expect(const NeuronRange& range, const NeuronList& candidates, int tokens);
  void Add(const NeuronRange& range, const NeuronList& live, const float* h, int tokens);

  // The neurons of all ranges whose h is not zero for some token, until the next Join. Requires:
  // the first `ranges` were put. keep_zeros: also the neurons whose h is zero; their rows must be
  // in memory.
  FoundNeurons Join(int ranges, int tokens, bool keep_zeros = false);
  // Number of neurons put, including those whose h turned out zero, at the last Join.
  int num_live() const { return num_live_; }

 private:
  struct Count {
    int listed = 0;  // ids in the range
    int live = 0;    // live ones among these
  };
  float* Row(std::vector<float>& h, int token, int place) const;

  const int neurons_;            // F
  const int range_;              // neurons of a range
  std::vector<int> ids_;         // [F] by place: each range has `listed` from its first place on
  std::vector<float> h_;         // [T, F] of ids_
  std::vector<Count> counts_;    // [ranges]
  std::vector<int> joined_ids_;  // [F]
  std::vector<float> joined_h_;  // [T, F]
  int num_live_ = 0;
};

}  // namespace thermocline::ffn
