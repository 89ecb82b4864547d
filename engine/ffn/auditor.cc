#include "engine/ffn/auditor.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"

namespace thermocline::ffn {

double ShiftUnit(FfnMode mode, const predictor::LayerPredictors& predictors) {
  constexpr double kLogitUnit = 2;
  if (mode != FfnMode::kSign || !predictors.sign.has_value()) return kLogitUnit;
  // Roots of the mean squares of unit normal inputs' levels, by slices.
  constexpr double kLevel[kernels::kSignSlicesMax + 1] = {0, 1, 1.2, 2.0, 3.3, 5.0};
  const predictor::SignPredictor& sign = *predictors.sign;
  return kLevel[sign.slices] * (sign.planes.magnitude != nullptr ? 2 : 1) *
         std::sqrt(sign.planes.cols);
}

Auditor::Auditor(const Params& p)
    : config_(p.config),
      predictors_(p.predictors),
      ops_(p.ops),
      interval_(p.interval),
      kept_(p.config.num_hidden_layers),
      totals_(kept_.size()),
      last_(kept_.size()),
      sweep_(p.sweep),
      swept_(kept_.size(), std::vector<predictor::AuditCounts>(p.sweep.size())) {
  input_.Resize(1, config_.hidden_size);
  for (Kept& kept : kept_) {
    kept.hidden.resize(config_.hidden_size);
    kept.residual.resize(kept.hidden.size());
    kept.predicted.reserve(config_.intermediate_size);
  }
  active_.reserve(config_.intermediate_size);
  active_h_.reserve(active_.capacity());
}

std::size_t Auditor::Bytes(const model::ModelConfig& config) {
  const std::size_t layers = config.num_hidden_layers;
  return layers * (base::Area(2, config.hidden_size) * sizeof(float) +
                   base::Area(1, config.intermediate_size) * sizeof(int));
}

void Auditor::Keep(int layer, const SparseFfn::Input& input, const SparseFfn& ffn) {
  // Decided when the token begins: by then the token before may have been audited to its end.
  if (layer == 0) keeping_ = interval_ > 0 && tokens_ >= next_token_ && !pending();
  if (!keeping_) return;
  Kept& kept = kept_[layer];
  kept.mode = ffn.policy(layer).mode;
  kept.valid = Predicts(kept.mode);
  if (!kept.valid) return;
  std::copy_n(input.hidden.x.data(), kept.hidden.size(), kept.hidden.data());
  std::copy_n(input.residual, kept.residual.size(), kept.residual.data());
  kept.predicted.assign(ffn.predicted().begin(), ffn.predicted().end());
}

void Auditor::EndToken() {
  if (keeping_) {
    audited_ = true;
    next_ = 0;
    next_token_ = tokens_ + interval_;
    keeping_ = false;
  }
  ++tokens_;
}

int Auditor::AuditOne(SparseFfn& ffn) {
  const int layer = next_++;
  const std::size_t at = layer;
  Kept& kept = kept_[at];
  last_[at] = {};
  if (kept.valid) {
    std::copy(kept.hidden.begin(), kept.hidden.end(), input_.x.begin());
    nn::QuantizeToken(ops_, input_, 0);
    const auto found = ffn.ActiveNeurons(layer, input_);
    if (!found.ok()) return layer;  // the device fails: the token that needs it will say so
    const FoundNeurons& active = *found;
    active_.assign(active.ids.begin(), active.ids.end());
    active_h_.assign(active.h, active.h + active.ids.size());
    const auto count = [&](std::span<const int> predicted) {
      return predictor::CountPrediction({.predicted = predicted,
                                         .active = active_,
                                         .h = active_h_.data(),
                                         .down_norms = predictors_.layers[at].down_norms.data(),
                                         .neurons = config_.intermediate_size});
    };
    last_[at] = count(kept.predicted);
    totals_[at] += last_[at];
    FfnPolicy policy{.mode = kept.mode};
    const double unit = ShiftUnit(policy.mode, predictors_.layers[at]);
    for (std::size_t i = 0; i < sweep_.size(); ++i) {
      policy.shift = static_cast<float>(sweep_[i] * unit);
      swept_[at][i] += count(ffn.PredictedBy(layer, {input_, kept.residual.data(), 1}, policy));
    }
  }
  if (next_ == config_.num_hidden_layers) audited_ = false;
  return layer;
}

}  // namespace thermocline::ffn
