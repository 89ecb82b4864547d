#include "engine/exec/auditor.h"

#include <algorithm>

namespace thermocline::exec {

Auditor::Auditor(const Params& p)
    : config_(p.config),
      predictors_(p.predictors),
      ops_(p.ops),
      interval_(p.interval),
      keeping_(p.interval > 0),
      kept_(static_cast<std::size_t>(p.config.num_hidden_layers)),
      totals_(kept_.size()),
      last_(kept_.size()) {
  input_.Resize(1, config_.hidden_size);
  for (Kept& kept : kept_) {
    kept.hidden.resize(static_cast<std::size_t>(config_.hidden_size));
    kept.predicted.reserve(static_cast<std::size_t>(config_.intermediate_size));
  }
}

void Auditor::Keep(int layer, const ActivationBuffer& hidden, const SparseFfn& ffn) {
  if (!keeping_) return;
  Kept& kept = kept_[static_cast<std::size_t>(layer)];
  kept.valid = ffn.Predicts(layer);
  if (!kept.valid) return;
  std::copy_n(hidden.x.data(), kept.hidden.size(), kept.hidden.data());
  kept.predicted.assign(ffn.predicted().begin(), ffn.predicted().end());
}

void Auditor::EndToken() {
  if (interval_ <= 0) return;
  if (keeping_) {
    audited_ = true;
    next_ = 0;
  }
  ++tokens_;
  keeping_ = tokens_ % interval_ == 0 && !pending();
}

int Auditor::AuditOne(SparseFfn& ffn) {
  const int layer = next_++;
  const auto at = static_cast<std::size_t>(layer);
  Kept& kept = kept_[at];
  last_[at] = {};
  if (kept.valid) {
    std::copy(kept.hidden.begin(), kept.hidden.end(), input_.x.begin());
    QuantizeToken(ops_, input_, 0);
    const SparseFfn::Neurons active = ffn.ActiveNeurons(layer, input_);
    last_[at] = predictor::CountPrediction({.predicted = kept.predicted,
                                            .active = active.ids,
                                            .h = active.h,
                                            .down_norms = predictors_.layers[at].down_norms.data(),
                                            .neurons = config_.intermediate_size});
    totals_[at] += last_[at];
  }
  if (next_ == config_.num_hidden_layers) audited_ = false;
  return layer;
}

}  // namespace thermocline::exec
