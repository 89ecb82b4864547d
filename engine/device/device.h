// An open accelerator, the only access to its memory, streams and graphs.
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
    const kernels::DeviceOps* ops;  // CudaOps(); null: this build has no CUDA
    int index = 0;                  // the driver's index
    const char* nodes = "/dev";     // the folder of the device nodes; tests use their own
  };
  // Unimplemented: built without CUDA, or not for this architecture. FailedPrecondition: no driver,
  // or no permission on the device nodes. NotFound: no such device. Unavailable: other errors. Each
  // message includes advice.
  static Result<std::unique_ptr<Device>> Open(const Params& params);

  const kernels::DeviceOps& ops() const { return ops_; }
  const kernels::DeviceRuntime& runtime() const { return ops_.runtime; }
  const kernels::DeviceProperties& properties() const { return properties_; }
  // "NVIDIA H200, compute capability 9.0, driver 13.0".
  std::string Describe() const;

  // Selects the device for the calling thread.
  Status Use() const;
  struct Memory {
    std::size_t free, total;  // bytes
  };
  Result<Memory> FreeMemory() const;
  // Unavailable "CALL: the runtime's text" unless `error` is 0.
  Status Check(kernels::DeviceError error, std::string_view what) const;
  // True after an error that makes the device unusable for this process, even after Reset.
  bool process_lost() const { return process_lost_; }
  // Frees everything allocated on the device, after a sticky error. Requires: buffers and streams
  // are not used any more; their destructors do nothing then.
  Status Reset();

  // Records allocations, so that an error can list them. Thread-safe.
  void Track(std::string_view name, std::size_t bytes, bool pinned);
  void Untrack(std::string_view name, std::size_t bytes, bool pinned);
  // ResourceExhausted with a table of the memory held and requested, and free and total memory.
  Status OutOfMemory(std::string_view name, std::size_t bytes, bool pinned) const;
  // Number of resets: objects made before the last one are invalid.
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
