#include "engine/gpu/device_health.h"

#include "engine/base/log.h"

namespace thermocline::gpu {

void DeviceHealth::Fail(const Status& error) {
  if (failed()) return;
  error_ = error;
  dead_ = rebuilt_ || lost_();
  base::LogError(error.message(), lost_()    ? "; this process cannot use it any more"
                                  : rebuilt_ ? "; its context was rebuilt before"
                                             : "; its context is rebuilt for the next request");
  release_();
}

Status DeviceHealth::MayRebuild(int cached) const {
  if (dead_) {
    return base::Unavailable(error_.message(),
                             rebuilt_ ? " (the context was rebuilt once before)"
                                      : " (this process cannot use the device any more)",
                             ": restart the program");
  }
  if (cached > 0) {
    return base::Unavailable(error_.message(),
                             " (what it held of this sequence is lost: begin the sequence anew)");
  }
  return OkStatus();
}

Status DeviceHealth::Rebuilt(const Status& built) {
  rebuilt_ = true;
  dead_ = !built.ok();
  if (dead_) return built.Annotate("the GPU's context cannot be rebuilt, restart the program");
  error_ = OkStatus();
  base::LogInfo("the GPU's context is rebuilt");
  return OkStatus();
}

}  // namespace thermocline::gpu
