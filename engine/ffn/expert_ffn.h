// The feed-forward network of a layer whose neurons are grouped into experts.
//
//   y_t = sum_i w_ti down_i(act(gate_i x_t) * up_i x_t) (+ the shared expert's)
//
// A unit is an expert with the tokens that chose it; the shared expert is an additional unit with
// all tokens. Several tokens read the union of their experts, each once.
//
//   router -> choices -> units (from flash: those in memory first, while the others are read)
//   one parallel loop over (unit, range of neurons): gate, up, activation, 8-bit form
//   one over ranges of output columns: each unit's product, weighted and added, by ascending expert
// The order of the sums is that of a token alone, so its bits are the same.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/api/expert_stats.h"
#include "engine/ffn/expert_partition.h"
#include "engine/ffn/expert_units.h"
#include "engine/ffn/ffn_context.h"
#include "engine/ffn/ffn_counters.h"
#include "engine/ffn/flash_experts.h"
#include "engine/ffn/router.h"

namespace thermocline::ffn {

class NeuronExperts;

// Decode thread only. Borrows everything; allocates nothing after construction.
class ExpertFfn {
 public:
  // Requires: a model with experts.
  ExpertFfn(const FfnContext& context, int tokens_max);
  // Bytes that a construction with these sizes allocates; 0 without experts.
  static std::size_t Bytes(const FfnSizes& sizes);

  // Experts come from `store`, whose entries are experts instead of neurons. Once, before the first
  // Run.
  void SetFlash(store::NeuronStore* store, bool read_ahead) {
    flash_.emplace(context_, *store, read_ahead);
  }

  // `hot` computes its experts at the same time; null: there is no hot side. Borrowed. It is given
  // up after an error. The bits are those of one side. Once, before the first Run.
  void SetHot(ExpertPartition* hot) {
    hot_ = hot;
    if (flash_.has_value()) flash_->SetHot(hot);
  }
  // `neurons` computes the experts, and skips neurons inside them; null: they are computed densely.
  // Borrowed. Requires: down rows; no hot side, no flash.
  void SetNeurons(NeuronExperts* neurons) { neurons_ = neurons; }
  // Uses of experts on both sides and times, like HybridFfn's for neurons.
  HybridCounters counters() const;
  const ExpertStats& stats() const { return stats_; }
  // The reason why the hot side was given up; OK if it was not.
  const Status& lost() const { return lost_; }

  // For routers whose input is not the network's: call before Run, with the residual that they
  // read. Starts reading missing experts.
  void ChooseFirst(int layer, const float* residual, int tokens);
  // out [T, D]. Requires: the layer has experts. Errors as store::NeuronStore::Await; none without
  // flash.
  Status Run(const FfnStep& step, float* out);
  // The experts that the last Run chose for its tokens: [T, K], a token's by ascending expert.
  std::span<const ChosenExpert> chosen() const { return chosen_; }
  // The experts of its first token, ascending.
  std::span<const int> chosen_ids() const { return chosen_ids_; }
  // Adds the reads of a token of the last Run.
  void Count(int layer, int tokens, FfnCounters& counters);

 private:
  void Choose(int layer, const kernels::Activations& input, int tokens);
  void MakeUnits(int layer, const FfnInput& input);
  void AddExperts(const model::ExpertWeights& w, int tokens);
  void AddShared(const model::ExpertWeights& w, const FfnInput& input);
  // Computes the experts in memory while the others are read, then the others.
  Status ComputeFromFlash(int layer, const FfnInput& input);
  // Moves the units that have arrived in memory since the last call to ready_.
  void PlaceReady(int layer);
  // Computes the experts by neurons_, and the shared expert densely.
  void RunNeurons(const FfnStep& step, float* out);
  // Starts the experts of the hot side.
  void StartHotUnits(int layer, const FfnInput& input);
  // Computes the neurons of all other units.
  Status ComputeHere(int layer, const FfnInput& input);
  // The hot side's rows; null: it failed, and everything was computed on this side.
  Result<const float*> AwaitHot(int layer, const FfnInput& input);
  // `rows`: of the units computed by the hot side.
  void SumDown(int tokens, const float* rows, float* out);

  const FfnContext context_;
  Router router_;
  ExpertComputer computer_;
  ExpertPartition* hot_ = nullptr;
  NeuronExperts* neurons_ = nullptr;
  Status lost_;  // of a hot side that failed
  HybridCounters counters_;
  ExpertStats stats_;
  std::vector<float> logits_;         // [T, E]
  std::vector<ChosenExpert> chosen_;  // [T, K]
  std::vector<int> chosen_ids_;       // [K]
  std::vector<ExpertUnit> units_;     // of the step; the shared one last
  std::vector<ExpertUnit*> ready_;    // units whose neurons are computed together
  std::vector<ExpertUnit*> hot_units_;
  std::optional<FlashExperts> flash_;  // none: everything is in memory
  std::vector<int> starts_;            // [E + 1] first place of an expert's tokens
  std::vector<int> ids_;               // [T K] tokens by expert
  std::vector<float> weights_;         // [T K] of ids_
  std::vector<float> input_weights_;   // [T K] of ids_: RouterConfig::on_input
  nn::ActivationBuffer h_;             // [T K, f]
  std::vector<float> up_;              // [T K, f]
  nn::ActivationBuffer shared_h_;      // [T, fs]
  std::vector<float> shared_up_;       // [T, fs]
  std::vector<float> shared_weight_;   // [T]
  std::vector<float> routed_;          // [T, D] inputs of the router, or empty
};

}  // namespace thermocline::ffn
