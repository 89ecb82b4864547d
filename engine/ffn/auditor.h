// Audits of prediction: on one of N decoded tokens, what the layers' networks would have computed
// without a predictor.
//
// The audited token only keeps its inputs and predictions, a copy of 2 D floats a layer. The audits
// are made later, one layer after each further token, and the rest when the engine has nothing else
// to do: so a token waits for the gate rows of one layer at most. A token is audited when the
// audits of the one before are done: one of L at most, unless the engine pauses.
#pragma once

#include <vector>

#include "engine/ffn/sparse_ffn.h"
#include "engine/predictor/audit.h"

namespace thermocline::ffn {

// What a shift of a layer's predictor is measured in: the standard deviation of a sign score over
// random signs, or a trained predictor's logit of e squared to one.
double ShiftUnit(FfnMode mode, const predictor::LayerPredictors& predictors);

// Decode thread only.
class Auditor {
 public:
  struct Params {
    const model::ModelConfig& config;
    const predictor::Predictors& predictors;  // with down_norms
    const kernels::OpTable& ops;
    int interval;  // tokens; 0 = never
    // What-if: predictions are counted at these shifts too, in units of ShiftUnit.
    std::vector<float> sweep = {};
  };
  explicit Auditor(const Params& params);
  // Of the inputs and predictions that it keeps.
  static std::size_t Bytes(const model::ModelConfig& config);

  // Keeps what the audited token's layer saw. Called after the layer's network has run.
  void Keep(int layer, const SparseFfn::Input& input, const SparseFfn& ffn);
  // Counts a token.
  void EndToken();
  bool pending() const { return next_ < std::ssize(kept_) && audited_; }
  // Audits the next kept layer. Returns its number. Requires: pending.
  int AuditOne(SparseFfn& ffn);

  // The mode in which the layer's kept token was predicted.
  FfnMode mode(int layer) const { return kept_[layer].mode; }

  // Sums since the start at shift `i` of the sweep.
  const predictor::AuditCounts& swept(int layer, std::size_t i) const { return swept_[layer][i]; }
  // Sums since the start, by layer, and of the last audit of a layer.
  const predictor::AuditCounts& total(int layer) const { return totals_[layer]; }
  const predictor::AuditCounts& last(int layer) const { return last_[layer]; }

 private:
  struct Kept {
    bool valid = false;  // the layer predicted
    FfnMode mode = FfnMode::kDense;
    std::vector<float> hidden;    // [D]
    std::vector<float> residual;  // [D]
    std::vector<int> predicted;   // capacity F
  };

  const model::ModelConfig& config_;
  const predictor::Predictors& predictors_;
  const kernels::OpTable& ops_;
  const int interval_;
  std::int64_t tokens_ = 0;
  std::int64_t next_token_ = 0;                        // the first that may be audited
  bool keeping_ = false;                               // the current token is audited
  bool audited_ = false;                               // kept_ is whole
  int next_ = 0;                                       // layer to audit
  std::vector<Kept> kept_;                             // [L]
  nn::ActivationBuffer input_;                         // [1, D]
  std::vector<predictor::AuditCounts> totals_, last_;  // [L]
  const std::vector<float> sweep_;
  std::vector<std::vector<predictor::AuditCounts>> swept_;  // [L][shifts]
  std::vector<int> active_;                                 // neurons of the audited layer
  std::vector<float> active_h_;
};

}  // namespace thermocline::ffn
