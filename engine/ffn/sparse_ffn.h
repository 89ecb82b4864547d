// The feed-forward network of one layer; reads only the neurons that a mode needs.
//
//   h_i = act(g_i . x) (u_i . x),  y = sum_i h_i d_i    (h_i = act(u_i . x) if there is no gate)
//
// One parallel loop goes over ranges of neurons: find the candidates, multiply their gate rows,
// then the up rows of those whose gate is not zero. A second goes over ranges of output columns and
// sums the down rows of the live ones. Several tokens share the rows: the union is read, and a
// token's neurons are the same as if it were alone, so its bits are the same.
//
//   CandidateFinder -> RangeComputer ------------------> LiveNeurons -> DownSum
//     ids, masks         gates; live ids; h   (by range)    together      y
//          or all at once: AllNeurons ------------------------------------^
//
// If neurons may be on flash, missing ones are read while those in memory are multiplied:
//   candidates (with gates, if the deciding rows are in memory) -> FlashNeurons: reads start
//   predict the next layer's neurons      | reads of this layer
//   multiply the neurons in memory        | reads of this layer, then those ahead
//   wait; multiply those that came late   | those ahead
//   sum the down rows, attention, ...     | those ahead
#pragma once

#include <optional>
#include <utility>

#include "engine/base/index.h"
#include "engine/ffn/all_neurons.h"
#include "engine/ffn/audited_side.h"
#include "engine/ffn/candidate_finder.h"
#include "engine/ffn/down_sum.h"
#include "engine/ffn/expert_ffn.h"
#include "engine/ffn/ffn_counters.h"
#include "engine/ffn/flash_neurons.h"
#include "engine/ffn/range_computer.h"
#include "engine/store/trace.h"

namespace thermocline::ffn {

// Decode thread only. Borrows everything; allocates nothing after construction.
class SparseFfn final : public AuditedSide {
 public:
  struct Params {
    const model::ModelConfig& config;
    const model::Weights& weights;
    const predictor::Predictors* predictors;  // null: none
    const kernels::OpTable& ops;
    base::WorkerPool& pool;
    nn::Multiplier& multiplier;
    int tokens_max;                       // T
    store::NeuronStore* flash = nullptr;  // the neurons that are not in memory
    bool deciding_held = true;            // the deciding rows are in memory, even with flash
    bool read_ahead = true;               // read the next layer's probable neurons ahead
    // The neurons of this partition, [L] ascending ids; null: all. The predictors are of these
    // neurons, in this order; the matrices have rows for all ids, but only these are read.
    const std::vector<std::vector<int>>* members = nullptr;
    Ablation ablation = {};  // bundling is implemented by the store
  };
  explicit SparseFfn(const Params& params);
  // Bytes of the buffers that a network of these sizes allocates.
  static std::size_t Bytes(const FfnSizes& sizes);

  using Input = FfnInput;

  // out [T, D]. Layers of experts are computed by ExpertFfn. With more than kSparseTokensMax
  // tokens, or `lossless`, nothing is predicted. Errors as store::NeuronStore::Await; none without
  // a flash tier.
  Status Run(int layer, const Input& input, bool lossless, float* out);

  // out [T, D] = the dense network of a layer with experts beside it, from `input.hidden`.
  void RunBeside(int layer, const Input& input, float* out);
  // For routers whose input is not the network's: call before Run, with the residual that they read
  // [T, D]: at the layer's entry, or before its network.
  void ChooseExperts(int layer, const float* residual, int tokens) {
    experts_->ChooseFirst(layer, residual, tokens);
  }

  // For mixtures: as ExpertFfn's. Requires: layers of experts.
  void SetHotExperts(ExpertPartition* hot) { experts_->SetHot(hot); }
  void SetNeuronExperts(NeuronExperts* neurons) { experts_->SetNeurons(neurons); }
  const FfnContext& context() const { return context_; }
  // Null: there are no layers of experts.
  const ExpertFfn* experts() const { return experts_.has_value() ? &*experts_ : nullptr; }

  // One partition's part of a network whose neurons are split (hybrid_ffn.h): Find, then for tokens
  // at a time SumShared twice, for the maxima and for the sums (kernels/shared_sum.h), then
  // EndLayer. Requires: down_rows. Errors as Run.
  Status Find(int layer, const Input& input, const FfnPolicy& policy, bool lossless = false);
  // Sums tokens [first, first + count) of the last Find. Requires: a quantised type of down_rows.
  void SumShared(int layer, int first, int count, const kernels::SharedSum& part);
  // The sums of all tokens of the last Find, [T, D].
  void SumFound(int layer, int tokens, float* out, bool add_bias) {
    down_.SumRows(layer, tokens, found_, out, add_bias);
  }
  void EndLayer(int layer);
  // Neurons of the last Find that some token needs.
  int found() const { return base::IntSize(found_.ids); }
  std::span<const int> found_ids() const { return found_.ids; }
  // Neurons that the last Find predicted for some token, ascending, until the next call; empty if
  // it predicted none.
  std::span<const int> predicted() const { return predicted_.all(); }

  // For audits; overwrites predicted() and found_ids(). Errors as Run.
  Result<Activity> ExactActivity(int layer, const Input& input, const FfnPolicy& policy) override;
  Result<std::span<const int>> PredictedBy(int layer, const Input& input,
                                           const FfnPolicy& policy) override {
    return finder_.FindAll({layer, input, policy});
  }
  int num_neurons(int layer) const override { return context_.ranges.NumMembers(layer); }

  FfnPolicy& policy(int layer) { return policies_[layer]; }
  const FfnPolicy& policy(int layer) const { return policies_[layer]; }
  // The mode in which a layer is computed: prefill is computed without loss.
  FfnPolicy PolicyFor(int layer, bool lossless) const;
  const FfnCounters& counters(int layer) const { return counters_[layer]; }
  // Returns the counts since the last call.
  FfnCounters TakeCounters(int layer) { return std::exchange(counters_[layer], {}); }
  // Weight bytes of the layer's network.
  std::int64_t dense_bytes(int layer) const {
    return DenseBytes(context_.config, context_.layer(layer));
  }
  std::int64_t dense_operations(int layer) const { return DenseOperations(context_.config, layer); }

  bool tapped() const { return tap_ != nullptr; }
  // `tap` receives every network; null: none.
  void SetTap(FfnTap* tap) {
    all_.SetTap(tap);
    tap_ = tap;
  }
  // `trace` receives the neurons that each token needs of each layer: the predicted ones in a mode
  // that predicts, otherwise the active ones; for a mixture the experts, and an empty set for its
  // dense layers. Null: none. Borrowed.
  void SetTrace(store::TraceWriter* trace) { trace_ = trace; }
  // Sets if decoding steps are counted, and traced if they have one token; not so for drafts.
  void SetCounting(bool counting) { counting_ = counting; }
  bool counting() const { return counting_; }

 private:
  // Applies the architecture's norm of down's input to found_.
  void NormFound(int layer, int tokens);
  // True if a step is computed by whole matrices.
  bool ComputesAll(FfnMode mode, int tokens) const;
  // True if a step of the layer will need all neurons from flash.
  bool ReadsAll(int layer, int tokens, bool lossless) const;
  // For few tokens: computes only live neurons. next_too: the next layer needs all neurons from
  // flash.
  Status FindLive(FfnStep step, bool next_too);
  // Computes the gates of a layer with a cut for the step.
  void CutAllGates(FfnStep& step);
  Status FindOnFlash(const FfnStep& step);
  // The steps of a range.
  void ComputeRange(const FfnStep& step, const NeuronRange& range, int thread);
  void ComputeInPasses(const FfnStep& step);  // without fusion
  void FindCandidates(const FfnStep& step, const NeuronRange& range, int thread);
  void ComputeCandidates(const FfnStep& step, const NeuronRange& range, bool late, int thread);
  const NeuronList& Candidates(const FfnStep& step, const NeuronRange& range, int thread);
  // Reads ahead the neurons that the next layer would need if its input were this one's.
  void ReadNextAhead(const FfnStep& step);
  // Counts a step, and traces its token if it has one. all: every neuron was computed.
  void Count(const FfnStep& step, bool all);

  const FfnContext context_;
  CandidateFinder finder_;
  RangeComputer computer_;
  std::optional<FlashNeurons> flash_;  // none: everything is in memory
  LiveNeurons live_;
  std::vector<GatedNeurons> passed_;  // [ranges] passed from pass to pass; empty with fusion
  AllNeurons all_;
  DownSum down_;
  std::optional<ExpertFfn> experts_;  // none: every layer is dense
  nn::ActivationBuffer h_;  // [T, F] h of all neurons: of AllNeurons, and for down's columns
  FoundNeurons found_;      // by the last Find: of live_, or of h_
  RangeIds predicted_;      // by the last Find
  std::vector<FfnPolicy> policies_;    // [L]
  std::vector<FfnCounters> counters_;  // [L]
  store::TraceWriter* trace_ = nullptr;
  FfnTap* tap_ = nullptr;
  bool counting_ = true;
};

}  // namespace thermocline::ffn
