#include "engine/ffn/auditor.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/nn/multiplier.h"

namespace thermocline::ffn {

double ShiftUnit(FfnMode mode, const predictor::LayerPredictors& predictors) {
  constexpr double kLogitUnit = 2;
  if (mode != FfnMode::kSign || !predictors.sign.has_value()) return kLogitUnit;
  // Root mean squares of the levels of unit normal inputs, by slices.
  constexpr double kLevel[kernels::kSignSlicesMax + 1] = {0, 1, 1.2, 2.0, 3.3, 5.0};
  const predictor::SignPredictor& sign = *predictors.sign;
  return kLevel[sign.slices] * (sign.planes.magnitude != nullptr ? 2 : 1) *
         std::sqrt(sign.planes.cols);
}

namespace {

bool Has(const AuditedSide& side, int layer) { return side.num_neurons(layer) > 0; }
bool HasHot(const AuditedSides& sides, int layer) {
  return sides.hot != nullptr && Has(*sides.hot, layer);
}

}  // namespace

Auditor::Auditor(const Params& p)
    : config_(p.config),
      predictors_(p.predictors),
      ops_(p.ops),
      interval_(p.interval),
      shadow_(p.shadow),
      inputs_(p.config.num_hidden_layers),
      totals_(inputs_.size()),
      last_(inputs_.size()),
      sweep_(p.sweep),
      swept_(inputs_.size(), std::vector<predictor::AuditCounts>(p.sweep.size())),
      windows_(inputs_.size()),
      seconds_(inputs_.size()) {
  input_.Resize(1, config_.hidden_size);
  for (AuditedInput& kept : inputs_) {
    kept.hidden.resize(config_.hidden_size);
    kept.residual.resize(kept.hidden.size());
  }
  predicted_.reserve(config_.intermediate_size);
  active_.reserve(config_.intermediate_size);
  active_h_.reserve(active_.capacity());
}

std::size_t Auditor::Bytes(const model::ModelConfig& config) {
  const std::size_t layers = config.num_hidden_layers;
  return layers * (base::Area(2, config.hidden_size) * sizeof(float) +
                   kWindows * sizeof(predictor::AuditWindow)) +
         base::Area(3, config.intermediate_size) * sizeof(int);
}

void Auditor::Begin() { auditing_ = interval_ > 0 && tokens_ >= next_token_ && !pending(); }

void Auditor::KeepInput(int layer, const Input& input, const FfnPolicy& policy) {
  if (!auditing_) return;
  AuditedInput& kept = inputs_[layer];
  kept.policy = Audited(policy);
  kept.shadowed = IsLossless(policy.mode);
  kept.valid = Audits(policy);
  if (!kept.valid) return;
  std::copy_n(input.hidden, kept.hidden.size(), kept.hidden.data());
  std::copy_n(input.residual, kept.residual.size(), kept.residual.data());
}

void Auditor::EndStep(int tokens) {
  if (auditing_) {
    audited_ = true;
    next_ = 0;
    next_token_ = tokens_ + interval_;
    auditing_ = false;
  }
  tokens_ += tokens;
}

void Auditor::Start(const AuditedSides& sides) {
  if (!pending() || !inputs_[next_].valid || !HasHot(sides, next_)) return;
  const base::Stopwatch watch;
  LoadInput(next_);
  // AuditOne will meet an error again and handle it.
  (void)sides.hot->Start(next_, InputOf(next_), inputs_[next_].policy);
  seconds_[next_] += watch.Seconds();
}

int Auditor::AuditOne(const AuditedSides& sides) {
  const base::Stopwatch watch;
  const int layer = next_++;
  last_[layer] = {};
  // An error is reported by the next token that needs the failed side.
  if (inputs_[layer].valid) (void)AuditLayer(sides, layer);
  if (next_ == config_.num_hidden_layers) audited_ = false;
  seconds_[layer] += watch.Seconds();
  return layer;
}

Status Auditor::AuditLayer(const AuditedSides& sides, int layer) {
  const AuditedInput& kept = inputs_[layer];
  LoadInput(layer);
  RETURN_IF_ERROR(MeasureActivity(sides, layer));
  last_[layer] = Count(layer);
  if (!kept.shadowed) totals_[layer] += last_[layer];
  windows_[layer][WindowOf(kept.policy.mode, kept.shadowed)].Add(last_[layer]);
  return Sweep(sides, layer);
}

void Auditor::LoadInput(int layer) {
  const std::vector<float>& hidden = inputs_[layer].hidden;
  std::copy(hidden.begin(), hidden.end(), input_.x.begin());
  nn::QuantizeToken(ops_, input_, 0);
}

Status Auditor::Sweep(const AuditedSides& sides, int layer) {
  FfnPolicy policy{.mode = inputs_[layer].policy.mode};
  const double unit = ShiftUnit(policy.mode, predictors_.layers[layer]);
  for (std::size_t i = 0; i < sweep_.size(); ++i) {
    policy.shift = static_cast<float>(sweep_[i] * unit);
    RETURN_IF_ERROR(Predict(sides, layer, policy));
    swept_[layer][i] += Count(layer);
  }
  return OkStatus();
}

Status Auditor::Predict(const AuditedSides& sides, int layer, const FfnPolicy& policy) {
  const FfnInput input = InputOf(layer);
  std::span<const int> cold, hot;
  if (Has(sides.cold, layer)) {
    ASSIGN_OR_RETURN(cold, sides.cold.PredictedBy(layer, input, policy));
  }
  if (HasHot(sides, layer)) {
    ASSIGN_OR_RETURN(hot, sides.hot->PredictedBy(layer, input, policy));
  }
  MergePredicted(cold, hot);
  return OkStatus();
}

Status Auditor::MeasureActivity(const AuditedSides& sides, int layer) {
  const FfnInput input = InputOf(layer);
  const FfnPolicy& policy = inputs_[layer].policy;
  AuditedSide::Activity cold, hot;
  if (HasHot(sides, layer)) RETURN_IF_ERROR(sides.hot->Start(layer, input, policy));
  if (Has(sides.cold, layer)) {
    auto looked = sides.cold.ExactActivity(layer, input, policy);
    // The other side's started work is awaited even so, because its buffers are reused.
    if (!looked.ok() && HasHot(sides, layer)) (void)sides.hot->ExactActivity(layer, input, policy);
    if (!looked.ok()) return looked.status();
    cold = *looked;
  }
  if (HasHot(sides, layer)) {
    ASSIGN_OR_RETURN(hot, sides.hot->ExactActivity(layer, input, policy));
  }
  MergePredicted(cold.predicted, hot.predicted);
  MergeActive(cold.active, hot.active);
  return OkStatus();
}

void Auditor::MergePredicted(std::span<const int> cold, std::span<const int> hot) {
  predicted_.resize(cold.size() + hot.size());
  std::merge(cold.begin(), cold.end(), hot.begin(), hot.end(), predicted_.begin());
}

void Auditor::MergeActive(const FoundNeurons& cold, const FoundNeurons& hot) {
  active_.clear();
  active_h_.clear();
  std::size_t c = 0, h = 0;
  while (c < cold.ids.size() || h < hot.ids.size()) {
    const bool of_cold = h == hot.ids.size() || (c < cold.ids.size() && cold.ids[c] < hot.ids[h]);
    active_.push_back(of_cold ? cold.ids[c] : hot.ids[h]);
    active_h_.push_back(of_cold ? cold.h[c++] : hot.h[h++]);
  }
}

predictor::AuditCounts Auditor::Count(int layer) const {
  return predictor::CountPrediction({.predicted = predicted_,
                                     .active = active_,
                                     .h = active_h_.data(),
                                     .down_norms = predictors_.layers[layer].down_norms.data(),
                                     .neurons = config_.intermediate_size});
}

}  // namespace thermocline::ffn
