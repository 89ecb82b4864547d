// Watches the engine's progress. Other threads' responses do not prove it: an engine can hang while
// all other routes work.
#pragma once

#include <chrono>

#include "engine/engine.h"

namespace thermocline::server {

// Thread-compatible.
class ProgressWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // While there is work, the engine's heartbeat may stand still for `stall_max`.
  explicit ProgressWatch(Clock::duration stall_max) : stall_max_(stall_max) {}

  // False if the engine hangs. Without work it does not.
  bool Alive(const EngineStats& stats, Clock::time_point now);

 private:
  const Clock::duration stall_max_;
  std::int64_t heartbeat_ = -1;
  Clock::time_point moved_at_;  // the last time of a new heartbeat or of no work
};

}  // namespace thermocline::server
