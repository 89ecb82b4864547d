// Both ends of the hand-off between a device's stream and the decode thread: flags in mapped
// memory, each holding the number of the last exchange whose data is complete.
//
// An exchange begins with Begin on both ends, so their counts agree. The device's end is enqueued
// on the stream, or recorded in a graph that is replayed; it counts on the device. The host's end
// runs on the decode thread at the same time. Buffers are named after their writer.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/device/buffers.h"
#include "engine/device/stream.h"

namespace thermocline::gpu {

// Decode thread only. Errors: Unavailable.
class DeviceHandOff {
 public:
  // The user defines the side that raises a flag and the data it announces.
  enum Flag {
    kDeviceInput,
    kDeviceMaxima,
    kDeviceSums,
    kHostInput,
    kHostMaxima,
    kHostSums,
    kFlags
  };

  explicit DeviceHandOff(device::Device& device) : device_(device) {}
  // Called at load, and again after a reset: the counts start over.
  Status Allocate();

  // The device's end:
  Status Begin(device::DeviceStream& stream);
  // Copies to mapped memory and raises `flag`. Requires: bytes a multiple of 4.
  Status Publish(device::DeviceStream& stream, Flag flag, const void* from, void* to_host,
                 void* to_mapped, std::size_t bytes);
  Status Await(device::DeviceStream& stream, Flag flag);

  // The host's end:
  void Begin() { ++step_; }
  void Raise(Flag flag);
  // Returns once the device has raised the flag; Unavailable if it failed or does not respond.
  Status Wait(Flag flag);
  // Releases every wait of the device after an error; its later results are meaningless.
  void Release();
  // Called after a wait for the stream: Unavailable if the device gave up waiting.
  Status CheckWaits() const;

 private:
  std::uint32_t* flag(Flag which, bool on_device) const;

  device::Device& device_;
  device::DeviceBuffer epoch_;  // one u32
  device::MappedBuffer flags_;  // a cache line for each, and one for the device's error
  std::uint32_t step_ = 0;
};

}  // namespace thermocline::gpu
