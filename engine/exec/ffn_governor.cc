#include "engine/exec/ffn_governor.h"

#include <cmath>

namespace thermocline::exec {
namespace {

// The standard deviation of a sign score over random signs: the root of D times the mean square of
// an input's level, which for unit normal inputs is that of `slices` slices.
double ScoreDeviation(const predictor::SignPredictor& sign) {
  constexpr double kLevel[kernels::kSignSlicesMax + 1] = {0, 1, 1.2, 2.0, 3.3, 5.0};
  return kLevel[sign.slices] * (sign.planes.magnitude != nullptr ? 2 : 1) *
         std::sqrt(static_cast<double>(sign.planes.cols));
}

// Bounds and steps of the shift, in standard deviations of what it is added to.
predictor::ControllerParams ParamsFor(double recall, double deviation) {
  return {.recall = recall,
          .step = deviation / 8,
          .step_min = deviation / 64,
          .shift_max = 4 * deviation};
}

}  // namespace

FfnGovernor::FfnGovernor(const LoadedModel& model, Transformer& transformer,
                         const GovernorOptions& options)
    : model_(model),
      transformer_(transformer),
      options_(options),
      auditor_({.config = model.config,
                .predictors = *model.predictors,
                .ops = *model.ops,
                .interval = options.audit_interval}),
      current_(model.ffn_modes.size()),
      published_(current_) {
  // Logits of a trained predictor: a unit is e times the odds.
  constexpr double kLogitDeviation = 2;
  for (const predictor::LayerPredictors& layer : model.predictors->layers) {
    const double sign = layer.sign.has_value() ? ScoreDeviation(*layer.sign) : 1;
    sign_.emplace_back(ParamsFor(options.controller_recall, sign));
    low_rank_.emplace_back(ParamsFor(options.controller_recall, kLogitDeviation));
  }
  if (options.audit_interval > 0) transformer.SetAuditor(&auditor_);
  SetModes(model.ffn_modes);
  Publish();
}

predictor::LayerController* FfnGovernor::ControllerOf(int layer) {
  const auto at = static_cast<std::size_t>(layer);
  if (!controls()) return nullptr;
  switch (transformer_.ffn().policy(layer).mode) {
    case FfnMode::kSign:
      return &sign_[at];
    case FfnMode::kLowRank:
      return &low_rank_[at];
    default:
      return nullptr;
  }
}

void FfnGovernor::SetModes(const std::vector<FfnMode>& modes) {
  model_.SetModes(transformer_, modes);
  for (int l = 0; l < static_cast<int>(modes.size()); ++l) {
    if (const predictor::LayerController* controller = ControllerOf(l))
      transformer_.ffn().policy(l).shift = static_cast<float>(controller->shift());
  }
}

void FfnGovernor::AfterToken() {
  auditor_.EndToken();
  if (auditor_.pending()) AuditOne();
  Publish();
}

void FfnGovernor::Idle() {
  while (auditor_.pending()) AuditOne();
  Publish(true);  // no further token may come soon to show what a missed turn left out
}

void FfnGovernor::AuditOne() {
  const int layer = auditor_.AuditOne(transformer_.ffn());
  predictor::LayerController* controller = ControllerOf(layer);
  if (controller == nullptr || auditor_.last(layer).tokens == 0) return;
  controller->Freeze(frozen_);
  if (controller->Observe(auditor_.last(layer)))
    transformer_.ffn().policy(layer).shift = static_cast<float>(controller->shift());
}

void FfnGovernor::Publish(bool wait) {
  for (int l = 0; l < static_cast<int>(current_.size()); ++l) {
    FfnLayerStats& s = current_[static_cast<std::size_t>(l)];
    const FfnCounters& c = transformer_.ffn().counters(l);
    const predictor::AuditCounts& a = auditor_.total(l);
    s.mode = transformer_.ffn().policy(l).mode;
    s.tokens = c.tokens;
    s.gate_rows = c.gate_rows;
    s.up_rows = c.up_rows;
    s.down_rows = c.down_rows;
    s.bytes = c.bytes;
    s.predictor_bytes = c.predictor_bytes;
    s.dense_bytes = c.tokens * transformer_.ffn().dense_bytes(l);
    s.audited_tokens = a.tokens;
    s.tp = a.tp;
    s.fp = a.fp;
    s.fn = a.fn;
    s.tn = a.tn;
    s.missed_mass = a.missed_mass;
    s.total_mass = a.total_mass;
    const predictor::LayerController* controller = ControllerOf(l);
    s.controlled = controller != nullptr;
    if (controller == nullptr) continue;
    s.shift = controller->shift();
    s.recall = controller->recall();
    s.moves = controller->moves();
  }
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (wait && !lock.owns_lock()) lock.lock();
  if (lock.owns_lock()) published_ = current_;
}

std::vector<FfnLayerStats> FfnGovernor::Stats() const {
  std::vector<FfnLayerStats> stats;
  {
    const std::lock_guard lock(mutex_);
    stats = published_;
  }
  for (FfnLayerStats& layer : stats) layer.frozen = frozen_;  // at once, not with the next token
  return stats;
}

}  // namespace thermocline::exec
