// Neurons of a layer that may lie on flash: which of a step's candidates are in memory, the reads
// of the others, and which came late. A neuron's products do not depend on when it came, and the
// sum over down rows is taken when all are there, so the bits are those of memory.
#pragma once

#include "engine/ffn/ffn_context.h"
#include "engine/ffn/ffn_step.h"
#include "engine/ffn/neuron_list.h"
#include "engine/ffn/read_ahead_judge.h"
#include "engine/store/neuron_store.h"

namespace thermocline::ffn {

// The calls of a step, in this order: Put by every range, Request, Take of what is here by every
// range, Await if anything is late, Take of it. Put and Take: any thread, each with its own range.
// Allocates nothing after construction.
class FlashNeurons {
 public:
  struct Params {
    const FfnContext& context;
    store::NeuronStore& store;
    bool deciding_held;  // the deciding rows are in memory, whatever the store holds
    bool read_ahead;     // what the next layer will probably need
    int tokens_max;      // of a step, kSparseTokensMax or fewer
  };
  explicit FlashNeurons(const Params& params);
  // Bytes that a construction with these sizes allocates.
  static std::size_t Bytes(const FfnSizes& sizes);

  store::NeuronStore& store() { return store_; }
  const store::NeuronStore& store() const { return store_; }
  // With them, candidates are what is left after the gates: they are put with these.
  bool deciding_held() const { return deciding_held_; }
  // A mode that looks at every deciding row needs all neurons where these rows come along.
  bool NeedsAll(FfnMode mode) const { return !deciding_held_ && !Predicts(mode); }

  // Has all of a layer read and, `next_too`, begins with the next one. Errors as Await.
  Status ReadAll(int layer, int tokens, bool next_too);

  // The range's candidates, with or without gates.
  void Put(const NeuronRange& range, const NeuronList& candidates);
  void Put(const NeuronRange& range, const GatedNeurons& candidates, int tokens);
  // Starts the reads of the candidates that are not in memory. resident_only: leaves these out.
  void Request(int layer, bool resident_only);
  // True if Take(late) will have anything.
  bool reading() const { return store_.reading(); }
  // The range's candidates that were in memory at Request, or those that were not, until the
  // thread's next call; with gates if they were put so.
  const GatedNeurons& Take(const NeuronRange& range, bool late, int tokens, int thread);
  // Errors as store::NeuronStore::Await.
  Status Await() { return store_.Await(); }

  // True if it pays to read ahead the neurons that the next layer will probably need.
  bool ReadAheadPays() {
    return read_ahead_ && judge_.Pays(store_.fresh_uses(), store_.counters());
  }

 private:
  enum class Arrival : std::uint8_t { kHere, kLate, kLeftOut };

  float* Gates(int token, int place);

  store::NeuronStore& store_;
  const NeuronRanges ranges_;
  const int neurons_;  // F
  const bool deciding_held_, read_ahead_;
  ReadAheadJudge judge_;
  // The candidates by place: a range's are its first counts_[range].
  std::vector<int> counts_;                  // [ranges]
  std::vector<int> ids_;                     // [F]
  std::vector<std::uint16_t> masks_;         // [F] tokens
  std::vector<float> gates_;                 // [T, F] where the deciding rows are held
  std::vector<Arrival> arrivals_;            // [F]
  std::vector<int> wanted_ids_;              // [F] of all ranges together, as Request wants them
  std::vector<std::uint16_t> wanted_masks_;  // [F]
  std::vector<GatedNeurons> taken_;          // by thread
};

}  // namespace thermocline::ffn
