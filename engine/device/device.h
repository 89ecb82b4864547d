// An accelerator that has been opened: the one way to its memory, streams and graphs.
//
// Owns nothing on the device itself; DeviceBuffer, MappedBuffer, DeviceStream, DeviceEvent and
// DeviceGraph do, and borrow the Device. Every failing call of the runtime becomes a Status with
// the runtime's text. Thread-compatible; a thread that did not open the device calls Use() first.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "kernels/device_ops.h"

namespace thermocline::device {

class Device {
 public:
  struct Params {
    const kernels::DeviceOps* ops;  // CudaOps(); null: this build has none
    int index = 0;                  // as the driver counts
    const char* nodes = "/dev";     // where the device nodes are; tests have their own
  };
  // Unimplemented: built without CUDA, or not for this architecture. FailedPrecondition: no driver,
  // or no permission on the device nodes. NotFound: no such device. Unavailable: anything else.
  // Each message says what to do.
  static Result<std::unique_ptr<Device>> Open(const Params& params);

  const kernels::DeviceOps& ops() const { return ops_; }
  const kernels::DeviceRuntime& runtime() const { return ops_.runtime; }
  const kernels::DeviceProperties& properties() const { return properties_; }
  // "NVIDIA H200, compute capability 9.0, driver 13.0".
  std::string Describe() const;

  // Makes the device the calling thread's.
  Status Use() const;
  struct Memory {
    std::size_t free, total;  // bytes
  };
  Result<Memory> FreeMemory() const;
  // Unavailable "WHAT: the runtime's text" unless `error` is 0.
  Status Check(kernels::DeviceError error, std::string_view what) const;
  // Whether an error was met after which this process cannot use the device, not even after Reset.
  bool process_lost() const { return process_lost_; }
  // Gives up all that was allocated on the device, after an error that sticks. Requires: buffers
  // and streams are not used any more; what they free later is ignored.
  Status Reset();

  // What a load asked for, so that a refusal can list it. Thread-safe.
  void Note(std::string_view name, std::size_t bytes, bool pinned);
  void Forget(std::string_view name, std::size_t bytes, bool pinned);
  // ResourceExhausted: a table of what is held, what was asked for, free and total.
  Status OutOfMemory(std::string_view name, std::size_t bytes, bool pinned) const;
  // Counts resets: what was made before the last one is gone.
  int generation() const { return generation_; }

 private:
  Device(const kernels::DeviceOps& ops, int index) : ops_(ops), index_(index) {}

  struct Held {
    std::string name;
    std::size_t bytes;
    bool pinned;
    int count;
  };
  const kernels::DeviceOps& ops_;
  const int index_;
  kernels::DeviceProperties properties_ = {};
  int generation_ = 0;
  mutable std::atomic<bool> process_lost_ = false;
  mutable base::Mutex mutex_;
  std::vector<Held> held_ GUARDED_BY(mutex_);
};

}  // namespace thermocline::device
