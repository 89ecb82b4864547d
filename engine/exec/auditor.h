// Audits of prediction: on one of N decoded tokens, what the layers' networks would have computed
// without a predictor.
//
// The audited token only keeps its inputs and predictions, a copy of D floats a layer. The audits
// are made later, one layer after each further token, and the rest when the engine has nothing else
// to do: so a token waits for the gate rows of one layer at most.
#pragma once

#include <vector>

#include "engine/exec/sparse_ffn.h"
#include "engine/predictor/audit.h"

namespace thermocline::exec {

// Decode thread only.
class Auditor {
 public:
  struct Params {
    const model::ModelConfig& config;
    const predictor::Predictors& predictors;  // with down_norms
    const kernels::OpTable& ops;
    int interval;  // tokens; 0 = never
  };
  explicit Auditor(const Params& params);

  // Keeps what the audited token's layer saw. Called after the layer's network has run.
  void Keep(int layer, const ActivationBuffer& hidden, const SparseFfn& ffn);
  // Counts a token: decides whether the next one is audited.
  void EndToken();
  bool pending() const { return next_ < static_cast<int>(kept_.size()) && audited_; }
  // Audits the next kept layer. Returns its number. Requires: pending.
  int AuditOne(SparseFfn& ffn);

  // Sums since the start, by layer, and of the last audit of a layer.
  const predictor::AuditCounts& total(int layer) const {
    return totals_[static_cast<std::size_t>(layer)];
  }
  const predictor::AuditCounts& last(int layer) const {
    return last_[static_cast<std::size_t>(layer)];
  }

 private:
  struct Kept {
    bool valid = false;          // the layer predicted
    std::vector<float> hidden;   // [D]
    std::vector<int> predicted;  // capacity F
  };

  const model::ModelConfig& config_;
  const predictor::Predictors& predictors_;
  const kernels::OpTable& ops_;
  const int interval_;
  std::int64_t tokens_ = 0;
  bool keeping_ = true;                                // the current token is audited
  bool audited_ = false;                               // kept_ is whole
  int next_ = 0;                                       // layer to audit
  std::vector<Kept> kept_;                             // [L]
  ActivationBuffer input_;                             // [1, D]
  std::vector<predictor::AuditCounts> totals_, last_;  // [L]
};

}  // namespace thermocline::exec
