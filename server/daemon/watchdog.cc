#include "server/daemon/watchdog.h"

namespace thermocline::server {

bool ProgressWatch::Alive(const EngineStats& stats, Clock::time_point now) {
  // Paused requests wait for their clients. If none runs, waiting requests should start, except for
  // queue places whose prompts are not tokenized yet.
  const bool has_work =
      stats.running > stats.paused || (stats.running == 0 && stats.waiting > stats.reserved);
  if (!has_work || stats.heartbeat != heartbeat_) {
    heartbeat_ = stats.heartbeat;
    moved_at_ = now;
  }
  return now - moved_at_ <= stall_max_;
}

}  // namespace thermocline::server
