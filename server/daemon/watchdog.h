// Watches the engine's progress. A thread that still answers is no proof of it: an engine can hang
// while every other route works.
#pragma once

#include <chrono>

#include "engine/engine.h"

namespace thermocline::server {

// Thread-compatible.
class ProgressWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // With work to do, the engine's heartbeat may stand still for `stall_max`.
  explicit ProgressWatch(Clock::duration stall_max) : stall_max_(stall_max) {}

  // False: it hangs. Without work it does not.
  bool Alive(const EngineStats& stats, Clock::time_point now);

 private:
  const Clock::duration stall_max_;
  std::int64_t heartbeat_ = -1;
  Clock::time_point moved_at_;  // when the heartbeat was last new, or there was nothing to do
};

}  // namespace thermocline::server
