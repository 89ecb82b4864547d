// Experts that are not in memory: reads from flash those that a layer's tokens chose, and those
// that the next layer will probably choose.
//
// The guess: the next layer's router is given this layer's residual, normed as that layer will norm
// it. The feed-forward network between them changes it little (Eliseev and Mazur 2023).
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
  // `store` holds experts instead of neurons. Borrows everything.
  FlashExperts(const FfnContext& context, store::NeuronStore& store, bool read_ahead);
  // Bytes that a construction allocates.
  static std::size_t Bytes(const model::ModelConfig& config);

  // The experts of `hot` are not read; null: all are. Borrowed.
  void SetHot(const ExpertPartition* hot) { hot_ = hot; }

  // Starts to read the experts that `tokens` tokens chose, [T, K].
  void Request(int layer, std::span<const ChosenExpert> chosen, int tokens);
  // Reads ahead a single token's guess for the layer after `layer`; does nothing if `layer` is the
  // last or the next one is dense.
  void ReadAhead(int layer, const float* residual);
  // Counts of the guessed experts, and of the correct ones, since the start.
  struct Guesses {
    std::int64_t guessed = 0, right = 0;
  };
  const Guesses& guesses() const { return guesses_; }
  bool Has(int layer, int expert) const { return store_.Has(layer, expert); }
  // Requires: Has.
  ExpertPlace PlaceOf(int layer, int expert) const;
  bool reading() const { return store_.reading(); }
  void Poll() { store_.Poll(); }
  // Errors as store::NeuronStore.
  Status Await() { return store_.Await(); }
  void EndLayer(int layer) { store_.EndLayer(layer); }

 private:
  // Compares a single token's choice with the guess for it.
  void Judge(int layer, std::span<const ChosenExpert> chosen);
  bool IsHot(int layer, int expert) const { return hot_ != nullptr && hot_->Has(layer, expert); }

  const FfnContext context_;
  store::NeuronStore& store_;
  const bool read_ahead_;
  const ExpertPartition* hot_ = nullptr;
  Router router_;
  std::vector<std::uint16_t> masks_of_;  // [E] the tokens that chose each expert
  std::vector<int> ids_;                 // [E] chosen experts, ascending
  std::vector<std::uint16_t> masks_;     // [E] their tokens
  nn::ActivationBuffer guess_;           // [1, D] normed residual
  std::vector<float> logits_;            // [E]
  std::vector<ChosenExpert> guessed_;    // [K]
  int guessed_layer_ = -1;               // the layer of guessed_; -1: none
  Guesses guesses_;
};

}  // namespace thermocline::ffn
