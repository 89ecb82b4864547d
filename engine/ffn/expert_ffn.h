// The feed-forward network of a layer whose neurons are grouped into experts.
//
//   y_t = sum_i w_ti down_i(act(gate_i x_t) * up_i x_t) (+ the shared expert's)
//
// A unit is an expert with the tokens that chose it; the shared expert is one more with all tokens.
// Several tokens read the union of their experts, each once.
//
//   router -> choices -> units (from flash: those in memory first, while the others are read)
//   one parallel loop over (unit, range of neurons): gate, up, activation, 8-bit form
//   one over ranges of output columns: each unit's product, weighed and added, by ascending expert
// The order of the sums is that of a token alone, so its bits are the same.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/ffn/ffn_context.h"
#include "engine/ffn/ffn_counters.h"
#include "engine/ffn/flash_experts.h"
#include "engine/ffn/router.h"

namespace thermocline::ffn {

// Decode thread only. Borrows everything; allocates nothing after construction.
class ExpertFfn {
 public:
  // Requires: a model with experts.
  ExpertFfn(const FfnContext& context, int tokens_max);
  // Bytes that a construction with these sizes allocates; none without experts.
  static std::size_t Bytes(const FfnSizes& sizes);

  // Experts come from `store`, which has them for neurons. Once, before the first Run.
  void SetFlash(store::NeuronStore* store, bool read_ahead) {
    flash_.emplace(context_, *store, read_ahead);
  }

  // Routers that see the layer's entry: before Run. What is missing is read from here on.
  void ChooseFirst(int layer, const float* residual, int tokens);
  // out [T, D]. Requires: the layer has experts. Errors as store::NeuronStore::Await; without flash
  // there are none.
  Status Run(int layer, const FfnInput& input, float* out);
  // What the last Run chose for its tokens: [T, K], a token's by ascending expert.
  std::span<const ChosenExpert> chosen() const { return chosen_; }
  // Of its first token, ascending.
  std::span<const int> chosen_ids() const { return chosen_ids_; }
  // Adds what a token of the last Run read.
  void Count(int layer, FfnCounters& counters) const;

 private:
  // A matrix pair and a down projection with the tokens that go through them.
  struct Unit {
    int expert = -1;  // -1: the shared one
    model::Linear gate, up, down;
    int tokens = 0;                 // n
    const int* ids = nullptr;       // [n] of the step's tokens; null: all, in order
    const float* weight = nullptr;  // [n]
    nn::ActivationBuffer* h = nullptr;
    float* up_out = nullptr;  // [n, neurons]
    int first = 0;            // row of h and of up_out
    bool placed = false;      // from flash: it is in memory
    int neurons() const { return up.weight.rows; }
  };
  // Tokens of a unit, together for a product.
  struct Tile {
    int first, count;
  };
  // A thread's room.
  struct Scratch {
    nn::ActivationBuffer tokens;  // [kTileTokens, D]: those of a tile
    const Unit* unit = nullptr;   // whose
    int first = -1;
    std::vector<float> down;  // [kTileTokens, kExpertColumns]
  };

  void Choose(int layer, const kernels::Activations& input, int tokens);
  void MakeUnits(int layer, const FfnInput& input);
  void AddExperts(const model::ExpertWeights& w, int tokens);
  void AddShared(const model::ExpertWeights& w, const FfnInput& input);
  // The experts in memory while the others are read, then those.
  Status ComputeFromFlash(int layer, const FfnInput& input);
  // The units that are in memory now and were not before become ready_.
  void PlaceReady(int layer);
  // Of the units in ready_.
  void ComputeNeurons(const FfnInput& input);
  void ComputeRange(const Unit& unit, const FfnInput& input, int panel_begin, int panel_end,
                    int thread);
  // The activations of a tile, side by side.
  kernels::Activations Gather(const Unit& unit, const FfnInput& input, Tile tile, int thread);
  void ActivateRange(const Unit& unit, Tile tile, int row, int rows);
  void SumDown(int tokens, float* out);
  void AddDown(const Unit& unit, int panel_begin, int panel_end, int thread, float* out);

  const FfnContext context_;
  Router router_;
  std::vector<float> logits_;          // [T, E]
  std::vector<ChosenExpert> chosen_;   // [T, K]
  std::vector<int> chosen_ids_;        // [K]
  std::vector<Unit> units_;            // of the step; the shared one last
  std::vector<Unit*> ready_;           // whose neurons are computed together
  std::optional<FlashExperts> flash_;  // none: everything is in memory
  std::vector<int> starts_;            // [E + 1] first place of an expert's tokens
  std::vector<int> ids_;               // [T K] tokens by expert
  std::vector<float> weights_;         // [T K] of ids_
  nn::ActivationBuffer h_;             // [T K, f]
  std::vector<float> up_;              // [T K, f]
  nn::ActivationBuffer shared_h_;      // [T, fs]
  std::vector<float> shared_up_;       // [T, fs]
  std::vector<float> shared_weight_;   // [T]
  std::vector<Scratch> scratch_;       // [threads]
};

}  // namespace thermocline::ffn
