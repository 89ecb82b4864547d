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

namespace {

bool HasHot(const AuditedSides& sides, int layer) {
  return sides.hot != nullptr && sides.hot->num_neurons(layer) > 0;
}

}  // namespace

Auditor::Auditor(const Params& p)
    : config_(p.config),
      predictors_(p.predictors),
      ops_(p.ops),
      interval_(p.interval),
      shadow_(p.shadow),
      kept_(p.config.num_hidden_layers),
      totals_(kept_.size()),
      last_(kept_.size()),
      sweep_(p.sweep),
      swept_(kept_.size(), std::vector<predictor::AuditCounts>(p.sweep.size())),
      windows_(kept_.size()),
      seconds_(kept_.size()) {
  input_.Resize(1, config_.hidden_size);
  for (Kept& kept : kept_) {
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

void Auditor::Keep(int layer, const FfnInput& input, const FfnPolicy& policy) {
  // Decided when the token begins: by then the token before may have been audited to its end.
  if (layer == 0) keeping_ = interval_ > 0 && tokens_ >= next_token_ && !pending();
  if (!keeping_) return;
  Kept& kept = kept_[layer];
  kept.policy = policy;
  kept.shadowed = policy.mode == FfnMode::kDense || policy.mode == FfnMode::kExact;
  if (kept.shadowed) kept.policy = {.mode = shadow_};
  kept.valid = Predicts(kept.policy.mode);
  if (!kept.valid) return;
  std::copy_n(input.hidden.x.data(), kept.hidden.size(), kept.hidden.data());
  std::copy_n(input.residual, kept.residual.size(), kept.residual.data());
}

void Auditor::EndStep(int tokens) {
  if (keeping_) {
    audited_ = true;
    next_ = 0;
    next_token_ = tokens_ + interval_;
    keeping_ = false;
  }
  tokens_ += tokens;
}

int Auditor::AuditOne(const AuditedSides& sides) {
  const base::Stopwatch watch;
  const int layer = next_++;
  last_[layer] = {};
  if (kept_[layer].valid) AuditLayer(sides, layer);
  if (next_ == config_.num_hidden_layers) audited_ = false;
  seconds_[layer] += watch.Seconds();
  return layer;
}

void Auditor::AuditLayer(const AuditedSides& sides, int layer) {
  const Kept& kept = kept_[layer];
  std::copy(kept.hidden.begin(), kept.hidden.end(), input_.x.begin());
  nn::QuantizeToken(ops_, input_, 0);
  if (!FindActive(sides, layer)) return;  // the token that needs the device will say so
  last_[layer] = Count(layer, PredictedBy(sides, layer, kept.policy));
  if (!kept.shadowed) totals_[layer] += last_[layer];
  windows_[layer][WindowOf(kept.policy.mode, kept.shadowed)].Add(last_[layer]);
  FfnPolicy policy{.mode = kept.policy.mode};
  const double unit = ShiftUnit(policy.mode, predictors_.layers[layer]);
  for (std::size_t i = 0; i < sweep_.size(); ++i) {
    policy.shift = static_cast<float>(sweep_[i] * unit);
    swept_[layer][i] += Count(layer, PredictedBy(sides, layer, policy));
  }
}

std::span<const int> Auditor::PredictedBy(const AuditedSides& sides, int layer,
                                          const FfnPolicy& policy) {
  const FfnInput input{input_, kept_[layer].residual.data(), 1};
  const std::span<const int> cold = sides.cold.PredictedBy(layer, input, policy);
  if (!HasHot(sides, layer)) return cold;
  const std::span<const int> hot = sides.hot->PredictedBy(layer, input, policy);
  predicted_.resize(cold.size() + hot.size());
  std::merge(cold.begin(), cold.end(), hot.begin(), hot.end(), predicted_.begin());
  return predicted_;
}

bool Auditor::FindActive(const AuditedSides& sides, int layer) {
  const auto cold = sides.cold.ActiveNeurons(layer, input_);
  if (!cold.ok()) return false;
  FoundNeurons hot{};
  if (HasHot(sides, layer)) {
    const auto found = sides.hot->ActiveNeurons(layer, input_);
    if (!found.ok()) return false;
    hot = *found;
  }
  active_.clear();
  active_h_.clear();
  std::size_t c = 0, h = 0;
  while (c < cold->ids.size() || h < hot.ids.size()) {
    const bool of_cold = h == hot.ids.size() || (c < cold->ids.size() && cold->ids[c] < hot.ids[h]);
    active_.push_back(of_cold ? cold->ids[c] : hot.ids[h]);
    active_h_.push_back(of_cold ? cold->h[c++] : hot.h[h++]);
  }
  return true;
}

predictor::AuditCounts Auditor::Count(int layer, std::span<const int> predicted) const {
  return predictor::CountPrediction({.predicted = predicted,
                                     .active = active_,
                                     .h = active_h_.data(),
                                     .down_norms = predictors_.layers[layer].down_norms.data(),
                                     .neurons = config_.intermediate_size});
}

}  // namespace thermocline::ffn
