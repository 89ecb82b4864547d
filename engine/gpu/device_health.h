// Decides whether a device can be used. After the first error the next step that begins a sequence
// rebuilds the context. After a second error, a failed rebuild, or an error after which the runtime
// promises nothing more to this process (a fault of a kernel), no step can use the device.
#pragma once

#include <functional>

#include "engine/base/status.h"

namespace thermocline::gpu {

// Decode thread only.
class DeviceHealth {
 public:
  // `release` lets what is on the device's stream end; called once for each failure. `lost`:
  // whether the process cannot use the device any more (device::Device::process_lost).
  DeviceHealth(std::function<void()> release, std::function<bool()> lost)
      : release_(std::move(release)), lost_(std::move(lost)) {}

  // An error of the device that a step met; later ones of the same failure are not kept.
  void Fail(const Status& error);
  // The device's part of the KV cache is lost. Not usable until a sequence begins.
  bool failed() const { return !error_.ok(); }
  // No later step can work: the process should end and be started anew.
  bool dead() const { return dead_; }
  // Checks that a failed device may be rebuilt for a step behind `cached` tokens; Unavailable says
  // why not.
  Status MayRebuild(int cached) const;
  // The rebuild ended with `built`; its error, if any, is annotated.
  Status Rebuilt(const Status& built);

 private:
  const std::function<void()> release_;
  const std::function<bool()> lost_;
  Status error_;
  bool dead_ = false, rebuilt_ = false;
};

}  // namespace thermocline::gpu
