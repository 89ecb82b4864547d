#include "engine/adapt/ffn_governor.h"

namespace thermocline::adapt {
namespace {

// The experts' use counts are up to 100 KiB, so they are copied only this often.
constexpr int kStepsBetweenUses = 64;

// Bounds and steps of the shift, in units of the threshold it is added to.
predictor::ControllerParams ParamsFor(double recall, double unit) {
  return {.recall = recall, .step = unit / 8, .step_min = unit / 64, .shift_max = 4 * unit};
}

RecentAudits RecentOf(const predictor::AuditCounts& sum) {
  return {.tokens = sum.tokens,
          .precision = sum.precision(),
          .recall = sum.recall(),
          .missed_share = sum.missed_share()};
}

void CopyInputs(const exec::Transformer& transformer, int layer, FfnLayerStats& out) {
  if (transformer.inputs() == nullptr) return;
  for (int kind = 0; kind < model::kInputKinds; ++kind) {
    const nn::InputCounts& c =
        transformer.inputs()->counts(layer, static_cast<model::InputKind>(kind));
    out.inputs[kind] = {.tokens = c.tokens, .kept = c.kept, .all = c.all, .missed = c.missed};
  }
}

}  // namespace

FfnGovernor::FfnGovernor(load::LoadedModel& model, exec::Transformer& transformer,
                         const GovernorOptions& options)
    : model_(model),
      transformer_(transformer),
      options_(options),
      auditor_({.config = model.config,
                .predictors = *model.predictors,
                .ops = *model.ops,
                .interval = options.audit_interval,
                .shadow = options.shadow}),
      current_(model.ffn_modes.size()),
      published_(current_),
      hot_(model.hot) {
  for (const predictor::LayerPredictors& layer : model.predictors->layers) {
    sign_.emplace_back(ParamsFor(options.controller_recall, ffn::ShiftUnit(FfnMode::kSign, layer)));
    low_rank_.emplace_back(
        ParamsFor(options.controller_recall, ffn::ShiftUnit(FfnMode::kLowRank, layer)));
  }
  if (options.audit_interval > 0) transformer.SetAuditor(&auditor_);
  SetModes({.layers = model.ffn_modes});
  Publish();
}

predictor::LayerController* FfnGovernor::ControllerOf(int layer, FfnMode mode) {
  const std::size_t at = layer;
  if (!controls()) return nullptr;
  switch (mode) {
    case FfnMode::kSign:
      return &sign_[at];
    case FfnMode::kLowRank:
      return &low_rank_[at];
    default:
      return nullptr;
  }
}

void FfnGovernor::SetModes(const load::RequestModes& modes) {
  model_.SetModes(transformer_, modes);
  for (int l = 0; l < std::ssize(modes.layers); ++l) {
    if (const predictor::LayerController* controller = ControllerOf(l, modes.layers[l]))
      transformer_.ffn().policy(l).shift = static_cast<float>(controller->shift());
  }
}

void FfnGovernor::AfterStep(int tokens) {
  auditor_.EndStep(tokens);
  if (auditor_.pending()) AuditOne();
  Publish();
}

void FfnGovernor::Idle() {
  while (auditor_.pending()) AuditOne();
  Publish(true);  // waits for the lock: no later step may publish it
}

void FfnGovernor::AuditOne() {
  const int layer = auditor_.AuditOne(transformer_.audited_sides());
  // A request in another mode may have started since the token was stored.
  const FfnMode mode = auditor_.mode(layer);
  FfnLayerStats& stats = current_[layer];
  stats.audit_s = auditor_.seconds(layer);
  if (auditor_.last(layer).tokens > 0) {
    const bool shadow = auditor_.shadowed(layer);
    (mode == FfnMode::kLowRank ? stats.recent_low_rank : stats.recent_sign)[shadow] =
        RecentOf(auditor_.window(layer, mode, shadow).sum());
  }
  predictor::LayerController* controller = ControllerOf(layer, mode);
  if (controller == nullptr || auditor_.shadowed(layer) || auditor_.last(layer).tokens == 0) return;
  controller->Freeze(frozen_);
  if (controller->Observe(auditor_.last(layer)) && transformer_.ffn().policy(layer).mode == mode)
    transformer_.ffn().policy(layer).shift = static_cast<float>(controller->shift());
}

void FfnGovernor::Publish(bool wait) {
  for (int l = 0; l < std::ssize(current_); ++l) {
    FfnLayerStats& s = current_[l];
    const predictor::AuditCounts& a = auditor_.total(l);
    s.mode = transformer_.ffn().policy(l).mode;
    ffn::SetFigures(transformer_.ffn_counters(l), transformer_.ffn().dense_bytes(l),
                    transformer_.ffn().dense_operations(l), s);
    s.neurons = ffn::NeuronsOf(transformer_.config(), l);
    CopyInputs(transformer_, l, s);
    s.audited_tokens = a.tokens;
    s.tp = a.tp;
    s.fp = a.fp;
    s.fn = a.fn;
    s.tn = a.tn;
    s.missed_mass = a.missed_mass;
    s.total_mass = a.total_mass;
    const predictor::LayerController* controller = ControllerOf(l, s.mode);
    s.controlled = controller != nullptr;
    if (controller == nullptr) continue;
    s.shift = controller->shift();
    s.recall = controller->recall();
    s.moves = controller->moves();
  }
  if (wait) {
    const base::MutexLock lock(mutex_);
    CopyOut(true);
  } else if (mutex_.try_lock()) {
    const base::MutexLock lock(mutex_, std::adopt_lock);
    CopyOut(++steps_ >= kStepsBetweenUses);
  }
}

void FfnGovernor::CopyOut(bool all) {
  published_ = current_;
  flash_ = model_.flash_counters();
  model_.UpdateHotStats(transformer_, hot_);
  const ffn::ExpertFfn* experts = transformer_.ffn().experts();
  if (!all || experts == nullptr) return;
  experts_ = experts->stats();
  steps_ = 0;
}

ExpertStats FfnGovernor::Experts() const {
  const base::MutexLock lock(mutex_);
  return experts_;
}

HotStats FfnGovernor::Hot() const {
  const base::MutexLock lock(mutex_);
  return hot_;
}

FlashCounters FfnGovernor::Flash() const {
  const base::MutexLock lock(mutex_);
  return flash_;
}

std::vector<FfnLayerStats> FfnGovernor::Stats() const {
  std::vector<FfnLayerStats> stats;
  {
    const base::MutexLock lock(mutex_);
    stats = published_;
  }
  for (FfnLayerStats& layer : stats) layer.frozen = frozen_;  // at once, not with the next token
  return stats;
}

}  // namespace thermocline::adapt
