// Neurons of a layer that may be on flash: determines which of a step's candidates are in memory,
// reads the others, and tracks which arrive late. A neuron's products do not depend on the time of
// its arrival, and the down rows are summed when all have arrived, so the bits are the same as in
// memory.
#pragma once

#include "engine/ffn/ffn_context.h"
#include "engine/ffn/ffn_step.h"
#include "engine/ffn/neuron_list.h"
#include "engine/ffn/read_ahead_monitor.h"
#include "engine/store/neuron_store.h"

namespace thermocline::ffn {

// The calls of a step, in this order: Put by every range, Request, Take of available candidates by
// every range, Await if any are late, Take of the late ones. Put and Take: any thread, each with
// its own range. Allocates nothing after construction.
class FlashNeurons {
 public:
  struct Params {
    const FfnContext& context;
    store::NeuronStore& store;
    bool deciding_held;  // the deciding rows are in memory, regardless of the store
    bool read_ahead;     // read ahead neurons that the next layer will probably need
    int tokens_max;      // of a step, kSparseTokensMax or fewer
  };
  explicit FlashNeurons(const Params& params);
  // Bytes that a construction with these sizes allocates.
  static std::size_t Bytes(const FfnSizes& sizes);

  store::NeuronStore& store() { return store_; }
  const store::NeuronStore& store() const { return store_; }
  // If true, candidates are those left after the gates, and are put with their gates.
  bool deciding_held() const { return deciding_held_; }
  // A mode that reads every deciding row needs all neurons if these rows are on flash too.
  bool NeedsAll(FfnMode mode) const { return !deciding_held_ && !Predicts(mode); }

  // Reads all neurons of a layer and, with `next_too`, starts reading the next layer's. Errors as
  // Await.
  Status ReadAll(int layer, int tokens, bool next_too);

  // Stores the range's candidates, with or without gates.
  void Put(const NeuronRange& range, const NeuronList& candidates);
  void Put(const NeuronRange& range, const GatedNeurons& candidates, int tokens);
  // Starts reading the candidates that are not in memory. resident_only: drops them instead.
  void Request(int layer, bool resident_only);
  // True if Candidates(late) will return any neurons.
  bool reading() const { return store_.reading(); }
  // The range's candidates that were in memory at Request or, with `late`, those that were not;
  // with gates if they were put with gates. Valid until the thread's next call.
  const GatedNeurons& Candidates(const NeuronRange& range, bool late, int tokens, int thread);
  // Errors as store::NeuronStore::Await.
  Status Await() { return store_.Await(); }

  // True if reading ahead the neurons that the next layer will probably need pays off.
  bool ReadAheadPays() {
    return read_ahead_ && read_ahead_monitor_.Pays(store_.fresh_uses(), store_.counters());
  }

 private:
  enum class Arrival : std::uint8_t { kHere, kLate, kLeftOut };

  float* Gates(int token, int place);

  store::NeuronStore& store_;
  const NeuronRanges ranges_;
  const int neurons_;  // F
  const bool deciding_held_, read_ahead_;
  ReadAheadMonitor read_ahead_monitor_;
  // The candidates by place: each range has counts_[range] of them from its first place on.
  std::vector<int> counts_;                  // [ranges]
  std::vector<int> ids_;                     // [F]
  std::vector<std::uint16_t> masks_;         // [F] tokens
  std::vector<float> gates_;                 // [T, F] if the deciding rows are in memory
  std::vector<Arrival> arrivals_;            // [F]
  std::vector<int> wanted_ids_;              // [F] of all ranges together, for Request
  std::vector<std::uint16_t> wanted_masks_;  // [F]
  std::vector<GatedNeurons> taken_;          // by thread
};

}  // namespace thermocline::ffn
