// Experts that memory does not hold: those that a layer's tokens chose are read from flash, and so
// are those that the next layer will probably choose.
//
// The guess: the next layer's router sees this layer's residual, normed as that layer will norm it.
// The feed-forward network between them changes it little (Eliseev and Mazur 2023).
#pragma once

#include <span>
#include <vector>

#include "engine/ffn/expert_partition.h"
#include "engine/ffn/hot_experts.h"
#include "engine/ffn/router.h"
#include "engine/store/neuron_store.h"

namespace thermocline::ffn {

// Decode thread only. Allocates nothing after construction.
class FlashExperts {
 public:
  // `store` has experts for neurons. Borrows everything.
  FlashExperts(const FfnContext& context, store::NeuronStore& store, bool read_ahead);
  // Bytes that a construction allocates.
  static std::size_t Bytes(const model::ModelConfig& config);

  // The experts that `hot` has are not read; null: all are. Borrowed.
  void SetHot(const ExpertPartition* hot) { hot_ = hot; }

  // Starts to read what `tokens` tokens chose, [T, K].
  void Request(int layer, std::span<const ChosenExpert> chosen, int tokens);
  // A single token's guess for the layer behind `layer`; nothing where that is the last, or dense.
  void ReadAhead(int layer, const float* residual);
  // Counts the guesses whose layer came, since the start.
  struct Guesses {
    std::int64_t guessed = 0, right = 0;
  };
  const Guesses& guesses() const { return guesses_; }
  bool Has(int layer, int expert) const { return store_.Has(layer, expert); }
  // Requires: Has.
  ExpertPlace PlaceOf(int layer, int expert) const;
  bool reading() const { return store_.reading(); }
  void Poke() { store_.Poke(); }
  // Errors as store::NeuronStore.
  Status Await() { return store_.Await(); }
  void EndLayer(int layer) { store_.EndLayer(layer); }

 private:
  // Compares a single token's choice with what was guessed for it.
  void Judge(int layer, std::span<const ChosenExpert> chosen);
  bool Elsewhere(int layer, int expert) const {
    return hot_ != nullptr && hot_->Has(layer, expert);
  }

  const FfnContext context_;
  store::NeuronStore& store_;
  const bool read_ahead_;
  const ExpertPartition* hot_ = nullptr;
  Router router_;
  std::vector<std::uint16_t> masks_of_;  // [E] the tokens that chose each
  std::vector<int> ids_;                 // [E] those chosen, ascending
  std::vector<std::uint16_t> masks_;     // [E] theirs
  nn::ActivationBuffer guess_;           // [1, D] normed residual
  std::vector<float> logits_;            // [E]
  std::vector<ChosenExpert> guessed_;    // [K]
  int guessed_layer_ = -1;               // that guessed_ is for; -1: none
  Guesses guesses_;
};

}  // namespace thermocline::ffn
