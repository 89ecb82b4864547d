// Decides if a device can be used. After the first error, the next step that begins a sequence
// rebuilds the context. After a second error, a failed rebuild, or an error after which the process
// cannot use the runtime any more (a fault in a kernel), no step can use the device.
#pragma once

#include <functional>

#include "engine/base/status.h"

namespace thermocline::gpu {

// Decode thread only.
class DeviceHealth {
 public:
  // `release` lets the work on the device's stream finish; called once per failure. `lost`: returns
  // true if the process cannot use the device any more (device::Device::process_lost).
  DeviceHealth(std::function<void()> release, std::function<bool()> lost)
      : release_(std::move(release)), lost_(std::move(lost)) {}

  // Records an error of the device in a step; later errors of the same failure are ignored.
  void Fail(const Status& error);
  // The device's part of the KV cache is lost. Not usable until a sequence begins.
  bool failed() const { return !error_.ok(); }
  // No later step can succeed: the process should exit and be restarted.
  bool dead() const { return dead_; }
  // Checks that a failed device may be rebuilt for a step after `cached` tokens; Unavailable states
  // why not.
  Status MayRebuild(int cached) const;
  // Records the result of a rebuild; its error, if any, is annotated.
  Status Rebuilt(const Status& built);

 private:
  const std::function<void()> release_;
  const std::function<bool()> lost_;
  Status error_;
  bool dead_ = false, rebuilt_ = false;
};

}  // namespace thermocline::gpu
