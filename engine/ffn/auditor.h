// Audits of prediction: for one in N decoded tokens, the result of each layer's network without a
// predictor.
//
// An audited token only stores its inputs, a copy of 2 D floats per layer. The audits run later,
// one layer after each further step, and the rest when the engine is idle: so a token waits for the
// gate rows of one layer at most. A token is audited when the audits of the previous one are done:
// one in L at most, unless the engine pauses. Predictions are repeated for the audit, from the same
// input and policy, on every side that has neurons of the layer: the CPU, a second partition of it,
// or a device. If a side fails, the layer's audit ends without being counted, and the next token
// that needs the side reports the error.
#pragma once

#include <array>
#include <vector>

#include "engine/base/stopwatch.h"
#include "engine/ffn/audited_side.h"
#include "engine/predictor/audit_window.h"
#include "engine/predictor/predictors.h"
#include "kernels/op_table.h"

namespace thermocline::ffn {

// The unit of a shift of a layer's predictor: the standard deviation of a sign score over random
// signs, or a trained predictor's logit at odds of e to one.
double ShiftUnit(FfnMode mode, const predictor::LayerPredictors& predictors);

// The sides that have a layer's neurons: one has all of them, or each has a part.
struct AuditedSides {
  AuditedSide& cold;
  AuditedSide* hot = nullptr;
};

// Decode thread only.
class Auditor {
 public:
  struct Params {
    const model::ModelConfig& config;
    const predictor::Predictors& predictors;  // with down_norms
    const kernels::OpTable& ops;
    int interval;  // tokens; 0 = never
    // The mode whose predictions are audited in layers that are computed without loss; kDense:
    // none.
    FfnMode shadow = FfnMode::kDense;
    // Further shifts at which predictions are counted, in units of ShiftUnit.
    std::vector<float> sweep = {};
  };
  explicit Auditor(const Params& params);
  // The bytes of the stored inputs, its lists and windows.
  static std::size_t Bytes(const model::ModelConfig& config);

  // Before a step's layers: decides if the step's first token is audited. Of drafted tokens the
  // first is kept whatever the verification's result.
  void Begin();
  // True if the step's token is audited in a layer that is computed by `policy`.
  bool Audits(const FfnPolicy& policy) const { return auditing_ && Predicts(Audited(policy).mode); }
  // The inputs of a layer's network for the step's first token, [D] each.
  struct Input {
    const float *hidden, *residual;
  };
  // Stores the input, if the token is audited. Once for each layer.
  void KeepInput(int layer, const Input& input, const FfnPolicy& policy);
  // Counts the tokens of a step.
  void EndStep(int tokens = 1);
  bool pending() const { return next_ < std::ssize(inputs_) && audited_; }
  // Starts the next stored layer's audit on a device, if there is one, in the background until
  // AuditOne. After a step's layers.
  void Start(const AuditedSides& sides);
  // Audits the next stored layer. Returns its number. Requires: pending.
  int AuditOne(const AuditedSides& sides);

  // The mode in which the layer's kept token was predicted.
  FfnMode mode(int layer) const { return inputs_[layer].policy.mode; }
  // True if the stored token was computed without loss, so that its prediction had no effect.
  bool shadowed(int layer) const { return inputs_[layer].shadowed; }

  // Sums since the start at shift `i` of the sweep.
  const predictor::AuditCounts& swept(int layer, std::size_t i) const { return swept_[layer][i]; }
  // Sums since the start, by layer, without shadows; and the last audit of a layer.
  const predictor::AuditCounts& total(int layer) const { return totals_[layer]; }
  const predictor::AuditCounts& last(int layer) const { return last_[layer]; }
  // The most recent audits of a layer in a predicting mode, or of its shadow.
  const predictor::AuditWindow& window(int layer, FfnMode mode, bool shadowed) const {
    return windows_[layer][WindowOf(mode, shadowed)];
  }
  // The total time of a layer's audits.
  double seconds(int layer) const { return seconds_[layer]; }

 private:
  struct AuditedInput {
    bool valid = false;           // there is a prediction to audit
    bool shadowed = false;        // the layer was computed without loss
    FfnPolicy policy;             // of the prediction
    std::vector<float> hidden;    // [D]
    std::vector<float> residual;  // [D]
  };

  // The policy audited in a layer that is computed by `policy`; dense: no audit.
  FfnPolicy Audited(const FfnPolicy& policy) const {
    return IsLossless(policy.mode) ? FfnPolicy{.mode = shadow_} : policy;
  }

  static constexpr int kWindows = 4;
  static int WindowOf(FfnMode mode, bool shadowed) {
    return (mode == FfnMode::kLowRank ? 1 : 0) + (shadowed ? 2 : 0);
  }
  // Counts a layer's stored token, whose hidden state is in input_; stops at an error.
  Status AuditLayer(const AuditedSides& sides, int layer);
  Status Sweep(const AuditedSides& sides, int layer);
  void LoadInput(int layer);
  FfnInput InputOf(int layer) const { return {input_, inputs_[layer].residual.data(), 1}; }
  // Puts both sides' predicted neurons into predicted_.
  Status Predict(const AuditedSides& sides, int layer, const FfnPolicy& policy);
  // As Predict, and also puts the active neurons and their h into active_ and active_h_.
  Status MeasureActivity(const AuditedSides& sides, int layer);
  void MergePredicted(std::span<const int> cold, std::span<const int> hot);
  void MergeActive(const FoundNeurons& cold, const FoundNeurons& hot);
  predictor::AuditCounts Count(int layer) const;

  const model::ModelConfig& config_;
  const predictor::Predictors& predictors_;
  const kernels::OpTable& ops_;
  const int interval_;
  const FfnMode shadow_;
  std::int64_t tokens_ = 0;
  std::int64_t next_token_ = 0;                        // the first token that may be audited
  bool auditing_ = false;                              // the current token is audited
  bool audited_ = false;                               // inputs_ is complete
  int next_ = 0;                                       // layer to audit
  std::vector<AuditedInput> inputs_;                   // [L]
  nn::ActivationBuffer input_;                         // [1, D]
  std::vector<predictor::AuditCounts> totals_, last_;  // [L]
  const std::vector<float> sweep_;
  std::vector<std::vector<predictor::AuditCounts>> swept_;             // [L][shifts]
  std::vector<std::array<predictor::AuditWindow, kWindows>> windows_;  // [L]
  std::vector<double> seconds_;                                        // [L]
  std::vector<int> predicted_, active_;  // neurons of the audited layer
  std::vector<float> active_h_;
};

}  // namespace thermocline::ffn
