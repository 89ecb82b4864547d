// Runs audits and controllers beside decoding, and publishes their figures.
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "engine/api/expert_stats.h"
#include "engine/api/ffn_stats.h"
#include "engine/base/mutex.h"
#include "engine/ffn/auditor.h"
#include "engine/load/loaded_model.h"
#include "engine/predictor/controller.h"

namespace thermocline::adapt {

struct GovernorOptions {
  int audit_interval = 0;            // one in this many decoded tokens; 0 = none
  FfnMode shadow = FfnMode::kDense;  // as Auditor::Params
  double controller_recall = 0;      // target; 0 = the thresholds stay as loaded
};

// Decode thread only, except Stats and Freeze.
class FfnGovernor {
 public:
  FfnGovernor(load::LoadedModel& model, exec::Transformer& transformer,
              const GovernorOptions& options);
  ~FfnGovernor() { transformer_.SetAuditor(nullptr); }
  FfnGovernor(const FfnGovernor&) = delete;
  FfnGovernor& operator=(const FfnGovernor&) = delete;

  // Sets the modes of the following tokens.
  void SetModes(const load::RequestModes& modes);
  // Called after each decoding step: audits at most one layer.
  void AfterStep(int tokens);
  // Runs the remaining audits while there is no other work.
  void Idle();
  // Called when a request ends: publishes its figures before its client sees the end.
  void EndRequest() { Publish(true); }

  // Thread-safe. Never blocks the decode thread while it has tokens to decode.
  std::vector<FfnLayerStats> Stats() const;
  FlashCounters Flash() const;
  HotStats Hot() const;
  ExpertStats Experts() const;
  void Freeze(bool frozen) { frozen_ = frozen; }
  bool frozen() const { return frozen_; }
  bool controls() const { return options_.controller_recall > 0; }

 private:
  predictor::LayerController* ControllerOf(int layer, FfnMode mode);
  void AuditOne();
  void Publish(bool wait = false);
  // Copies the decode thread's counters to the published ones. `all`: including the large ones.
  void CopyOut(bool all) REQUIRES(mutex_);

  load::LoadedModel& model_;
  exec::Transformer& transformer_;
  const GovernorOptions options_;
  ffn::Auditor auditor_;
  std::vector<predictor::LayerController> sign_, low_rank_;  // [L] each
  std::atomic<bool> frozen_{false};
  std::vector<FfnLayerStats> current_;  // decode thread
  mutable base::Mutex mutex_;
  std::vector<FfnLayerStats> published_ GUARDED_BY(mutex_);
  FlashCounters flash_ GUARDED_BY(mutex_);
  HotStats hot_ GUARDED_BY(mutex_);
  ExpertStats experts_ GUARDED_BY(mutex_);  // as of the last request, or some steps ago
  int steps_ GUARDED_BY(mutex_) = 0;        // since the last copy
};

}  // namespace thermocline::adapt
