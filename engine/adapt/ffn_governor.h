// Runs audits and controllers beside decoding, and keeps the figures that others read.
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
  int audit_interval = 0;            // one of so many decoded tokens; 0 = none
  FfnMode shadow = FfnMode::kDense;  // as Auditor::Params
  double controller_recall = 0;      // to hold; 0 = the thresholds stay as they were loaded
};

// Decode thread only, but for Stats and Freeze.
class FfnGovernor {
 public:
  FfnGovernor(load::LoadedModel& model, exec::Transformer& transformer,
              const GovernorOptions& options);
  ~FfnGovernor() { transformer_.SetAuditor(nullptr); }
  FfnGovernor(const FfnGovernor&) = delete;
  FfnGovernor& operator=(const FfnGovernor&) = delete;

  // The modes of the tokens to come.
  void SetModes(const load::RequestModes& modes);
  // After each step of decoding: at most one layer is audited.
  void AfterStep(int tokens);
  // The audits that are left, when there is nothing else to do.
  void Idle();
  // A request ends: its figures are there before its client sees that.
  void EndRequest() { Publish(true); }

  // Thread-safe. Never makes the decode thread wait while it has tokens to make.
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
  // From the decode thread's counters to what other threads read.
  // `all`: what is large, too.
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
  ExpertStats experts_ GUARDED_BY(mutex_);  // as of the last request, or of a while ago
  int steps_ GUARDED_BY(mutex_) = 0;        // since they were copied
};

}  // namespace thermocline::adapt
