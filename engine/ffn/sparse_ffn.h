// The feed-forward network of one layer, reading only the neurons that a mode asks for.
//
//   h_i = act(g_i . x) (u_i . x),  y = sum_i h_i d_i      (h_i = act(u_i . x) where there is no
//   gate)
// One parallel loop goes over ranges of neurons: predict, multiply the gate rows of the predicted,
// then the up rows of those whose gate is not zero. A second goes over ranges of output columns and
// sums the down rows of the live ones. Several tokens share the rows: the union is read, and a
// token's neurons are those it would have alone, so its bits are the same.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/api/ffn_mode.h"
#include "engine/ffn/ffn_tap.h"
#include "engine/nn/multiplier.h"
#include "engine/predictor/predictors.h"
#include "engine/store/neuron_store.h"
#include "engine/store/trace.h"

namespace thermocline::ffn {

// The kernels' name of an activation.
kernels::GateActivation GateOf(model::Activation activation);

inline bool Predicts(FfnMode mode) { return mode == FfnMode::kSign || mode == FfnMode::kLowRank; }

// Tokens of one step that may be predicted; more are computed exactly.
inline constexpr int kSparseTokensMax = 16;

// What decides which neurons of a layer are live, beside the predictors: changes between tokens.
struct FfnPolicy {
  FfnMode mode = FfnMode::kDense;
  // Added to what the predictor must reach: units of the sign score, of the low-rank logit, or of
  // |act(gate)|. Above zero reads less and misses more.
  float shift = 0;
  // Neurons that are not in memory are left out: for drafts.
  bool resident_only = false;
};

// Rows read by decoded tokens, since the start.
struct FfnCounters {
  std::int64_t tokens = 0, gate_rows = 0, up_rows = 0, down_rows = 0;
  std::int64_t predictor_bytes = 0, bytes = 0;  // bytes: all of the network's
};

// Decode thread only. Borrows everything; allocates nothing after construction.
class SparseFfn {
 public:
  struct Params {
    const model::ModelConfig& config;
    const model::Weights& weights;
    const predictor::Predictors* predictors;  // null: none
    const kernels::OpTable& ops;
    base::WorkerPool& pool;
    nn::Multiplier& multiplier;
    int tokens_max;                       // T
    store::NeuronStore* flash = nullptr;  // where the neurons are that memory does not hold
    bool deciding_held = true;            // the deciding rows are in memory, with or without it
    bool read_ahead = true;               // from flash, what the next layer will probably need
    // The neurons of this partition, [L] ascending ids; null: all. The predictors are of these, in
    // this order; the matrices have rows for all ids, but only these are read.
    const std::vector<std::vector<int>>* members = nullptr;
  };
  explicit SparseFfn(const Params& params);

  struct Input {
    const nn::ActivationBuffer& hidden;  // [T, D] normed
    const float* residual;               // [T, D] before the norm
    int tokens;
  };

  // out [T, D]. More than kSparseTokensMax tokens, or `lossless`: no prediction. Errors as
  // store::NeuronStore::Await; without a flash tier there are none.
  Status Run(int layer, const Input& input, bool lossless, float* out);

  // One partition's part of a network whose neurons are shared out (exec/hybrid_ffn.h): Find, then
  // for tokens at a time ShareSum twice, for the maxima and for the sums (kernels/shared_sum.h).
  // Requires: down_rows. Errors as Run.
  Status Find(int layer, const Input& input, const FfnPolicy& policy, bool lossless = false);
  // Of tokens [first, first + count) of the last Find. Requires: a quantised type of down_rows.
  void ShareSum(int layer, int first, int count, const kernels::SharedSum& part);
  // Of all tokens of the last Find, [T, D].
  void SumFound(int layer, int tokens, float* out, bool add_bias);

  // Neurons of the last Find that some token needs.
  int found() const { return found_.count; }
  std::span<const int> found_ids() const {
    return {found_.ids, static_cast<std::size_t>(found_.count)};
  }
  // After the last step of a layer that Find began. Run does it itself.
  void EndLayer(int layer) {
    if (flash_ != nullptr) flash_->EndLayer(layer);
  }

  // The mode a layer is computed in: prompts are computed without loss.
  FfnPolicy PolicyFor(int layer, bool lossless) const;
  FfnPolicy& policy(int layer) { return policies_[static_cast<std::size_t>(layer)]; }
  const FfnPolicy& policy(int layer) const { return policies_[static_cast<std::size_t>(layer)]; }
  const FfnCounters& counters(int layer) const {
    return counters_[static_cast<std::size_t>(layer)];
  }
  // Weight bytes of the layer's network.
  std::int64_t dense_bytes(int layer) const;
  // Neurons that the last Run of a single token predicted, ascending, until the next call; none if
  // it predicted nothing.
  std::span<const int> predicted() const {
    return std::span(predicted_ids_).first(static_cast<std::size_t>(num_predicted_));
  }
  bool Predicts(int layer) const { return ffn::Predicts(policy(layer).mode); }

  // Runs a layer's predictor alone, as its policy says: for timing. Requires: it predicts.
  void ProbePredictor(int layer, const Input& input);

  // The active neurons of one token, without any prediction and without counting; until the next
  // call. Overwrites predicted().
  struct Neurons {
    std::span<const int> ids;
    const float* h;
  };
  Result<Neurons> ActiveNeurons(int layer, const nn::ActivationBuffer& hidden);
  // What a policy predicts for one token, without counting; until the next call.
  std::span<const int> PredictedBy(int layer, const Input& input, const FfnPolicy& policy);

  // `tap` sees every dense network; null: none.
  void SetTap(FfnTap* tap);
  // `trace` is given the neurons that each token needs of each layer: those predicted, where a mode
  // predicts, else the active ones. Null: none. Borrowed.
  void SetTrace(store::TraceWriter* trace) { trace_ = trace; }
  // Whether decoded tokens are counted; drafts are not.
  void SetCounting(bool counting) { counting_ = counting; }
  // Null: everything is in memory.
  store::NeuronStore* flash() { return flash_; }
  const store::NeuronStore* flash() const { return flash_; }

 private:
  static constexpr int kRange = 512;  // neurons of a work item
  // One thread's work on a range of neurons for up to 16 tokens.
  struct Scratch {
    std::vector<std::int32_t> scores;  // [kRange]
    std::vector<float> logits;         // [16, kRange]
    std::vector<int> ids;              // [kRange] predicted by some token
    std::vector<std::uint16_t> masks;  // [kRange] by which: bit t
    std::vector<float> gate, act, up;  // [16, kRange]
    std::vector<int> live_ids;         // [kRange]
    std::vector<std::uint16_t> live_masks;
    std::vector<std::uint8_t> sum;  // of SumRows
  };
  // A work item: neurons of the partition, by place among its members.
  struct Range {
    int begin, count;
    const int* members;  // of the layer; null: all neurons

    int id(int i) const { return members != nullptr ? members[begin + i] : begin + i; }
    // The ids of the first `n`; null: they are begin, begin + 1, ...
    const int* ids() const { return members != nullptr ? members + begin : nullptr; }
  };
  int NumMembers(int layer) const;
  int NumRanges(int layer) const { return (NumMembers(layer) + kRange - 1) / kRange; }
  Range RangeOf(int layer, int range) const;
  std::span<const int> MemberIds(int layer) const;

  // sparse_ffn_wide.cc: every neuron's h into ffn_, by products of whole matrices.
  void FindWide(int layer, const Input& input);
  void MultiplyWide(int layer, const Input& input);
  void MultiplyDown(int layer, int tokens, float* out);
  bool IsWide(const FfnPolicy& policy, int tokens) const;
  // Live neurons into neuron_ids_ and chosen_. Returns how many.
  Result<int> FindNeurons(int layer, const Input& input, const FfnPolicy& policy);

  // sparse_ffn_flash.cc: the same where neurons may be on flash.
  // Whether a step of the layer needs every neuron.
  bool NeedsAll(int layer, int tokens, bool lossless) const;
  // Has all of the layer read, and the next one after it if it will need the same.
  Status ReadAll(int layer, int tokens);
  // One range's neurons that may be live, and as much of them as rows in memory decide: into
  // candidates_, masks_ and, where the deciding rows are held, neurons_ (their gates).
  void FindCandidates(int layer, const Input& input, const FfnPolicy& policy, int range,
                      int thread);
  Status FindOnFlash(int layer, const Input& input, const FfnPolicy& policy);
  // Leaves only those candidates of a range that are in memory.
  void DropAbsent(int layer, int range);
  // The candidates of a range that are in memory or, the second time, those that were not; their h
  // to neurons_ and what is live of them to masks_, by neuron.
  void ComputeCandidates(int layer, const Input& input, const FfnPolicy& policy, int range,
                         bool late, int thread);
  // The range's live candidates, as RunRange leaves them.
  void CloseRange(int range, int tokens);
  // Has the neurons read that the next layer would need if its input were this one's.
  void ReadNextAhead(int layer, const Input& input);
  bool GuessesPay();
  // sparse_ffn_predict.cc: what all ranges' predictions of a layer share.
  void PreparePredictor(int layer, const Input& input, FfnMode mode);
  void PrepareLowRank(int layer, const Input& input);
  void PrepareSigns(int layer, const Input& input);
  // sparse_ffn_range.cc: one range of neurons, to its places in neuron_ids_ and neurons_.
  void RunRange(int layer, const Input& input, const FfnPolicy& policy, int range, int thread);
  // The range's neurons that a token is predicted to use: ids and masks. Returns how many.
  int Predict(int layer, const FfnPolicy& policy, Range range, int tokens, Scratch& s);
  // [tokens, kRange] products of chosen rows (all of the range if ids is null), bias added.
  void MultiplyNeurons(const model::NeuronMatrix& matrix, const Input& input, const Range& range,
                       const int* ids, int count, float* out, int thread);
  struct Rows {
    float* data;
    int stride;
  };
  void MultiplyInto(const model::NeuronMatrix& matrix, const Input& input, const Range& range,
                    const int* ids, int count, int thread, const Rows& out);
  // The predicted whose activation keeps them alive. Returns how many.
  int Survive(const FfnPolicy& policy, int count, int tokens, Scratch& s);
  void Combine(int live, int tokens, Scratch& s, float* h, int h_stride);
  // The ranges' lists as one. Returns how many neurons.
  int Collect(int layer, int tokens);
  struct Chosen {
    const int* ids;
    int count;
    const float* h;  // [T, count], rows `stride` apart
    int stride;
    bool skip_zeros;
  };
  // Into `out`, or the tokens' part of a shared sum.
  void SumDown(int layer, int tokens, const Chosen& chosen, float* out,
               const kernels::SharedSum* shared = nullptr, bool add_bias = true);
  void Count(int layer, const FfnPolicy& policy, int live);

  const model::ModelConfig& config_;
  const model::Weights& weights_;
  const predictor::Predictors* predictors_;
  const kernels::OpTable& ops_;
  base::WorkerPool& pool_;
  nn::Multiplier& multiplier_;
  const bool gated_;
  const kernels::GateActivation activation_;
  const std::vector<std::vector<int>>* const members_;

  nn::ActivationBuffer ffn_;        // [T, F] h, where down is in panels or all neurons are wanted
  std::vector<float> up_;           // [T, F]
  std::vector<float> tapped_gate_;  // [T, F] while there is a tap
  std::vector<int> all_ids_;        // [F] 0, 1, 2, ...
  std::vector<int> neuron_ids_;     // [F] by range, then together
  std::vector<float> neurons_;      // [16, F] h by range
  std::vector<float> chosen_;       // [16, F] h together
  std::vector<int> predicted_ids_;  // [F] by range
  int num_predicted_ = 0;
  std::vector<int> guessed_;  // [F] of PredictedBy: by range, then together
  struct RangeCount {
    int predicted = 0, live = 0, guessed = 0;
  };
  std::vector<RangeCount> range_counts_;
  std::vector<Scratch> scratch_;           // by thread
  nn::ActivationBuffer low_rank_input_;    // [16, D]
  nn::ActivationBuffer low_rank_hidden_;   // [16, R max]
  kernels::Activations low_rank_view_;     // of the layer's R columns
  std::vector<std::uint64_t> sign_words_;  // [16, words]
  std::vector<float> sign_columns_;        // [D] the chosen elements of a token's input
  kernels::SignInput sign_inputs_[kSparseTokensMax];
  std::vector<FfnPolicy> policies_;    // [L]
  std::vector<FfnCounters> counters_;  // [L]
  FfnTap* tap_ = nullptr;
  store::TraceWriter* trace_ = nullptr;
  bool counting_ = true;
  Chosen found_ = {};  // by the last Find
  store::NeuronStore* const flash_;
  const bool deciding_held_;
  std::vector<int> candidates_;        // [F] by range, then together; with a flash tier
  std::vector<std::uint16_t> masks_;   // [F] by neuron: the tokens it is live for
  std::vector<std::uint16_t> needed_;  // [F] of the candidates, in their order
  std::vector<std::uint8_t> late_;     // [F] by neuron: it was not in memory when it was asked for
  const bool read_ahead_;
  // Guesses are given up for a while when most of what they read was for nothing.
  int guesses_ = 0, guesses_skipped_ = 0;
  std::int64_t fresh_uses_ = 0;                           // of the store, at the last guess
  float fresh_mean_ = 0;                                  // of late, between guesses
  std::int64_t guessed_useful_ = 0, guessed_wasted_ = 0;  // bytes, when they were last judged
  bool next_needs_all_ = false;  // the layer after the one at hand, in this step
};

}  // namespace thermocline::ffn
