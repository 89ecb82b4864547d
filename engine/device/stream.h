// Queues of work on a device, events in them, and recorded work that is launched as a unit.
//
// Each object is freed by its destructor, unless the device was reset since, and borrows the
// Device.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "engine/device/device.h"

namespace thermocline::device {

class DeviceGraph;

// Runs work in order; used by one thread at a time.
class DeviceStream {
 public:
  static Result<std::unique_ptr<DeviceStream>> Create(Device& device);
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  kernels::Stream handle() const { return stream_; }
  Device& device() const { return device_; }

  // Waits for all work so far. Errors of earlier kernels are reported here.
  Status Synchronize();
  // Asynchronous; the host memory must stay valid until the stream has passed the copy.
  Status CopyToDevice(void* to, const void* from_host, std::size_t bytes);
  Status CopyToHost(void* to_host, const void* from, std::size_t bytes);
  Status CopyOnDevice(void* to, const void* from, std::size_t bytes);
  Status Fill(void* to, int byte, std::size_t bytes);
  // Work between the two calls is recorded instead of run. After an error in between, EndGraph ends
  // the recording and returns its cause.
  Status BeginGraph();
  Result<std::unique_ptr<DeviceGraph>> EndGraph();
  Status Launch(const DeviceGraph& graph);

 private:
  DeviceStream(Device& device, kernels::Stream stream);

  Device& device_;
  const kernels::Stream stream_;
  const int generation_;
};

class DeviceGraph {
 public:
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

 private:
  friend class DeviceStream;
  DeviceGraph(Device& device, kernels::Graph graph);

  Device& device_;
  const kernels::Graph graph_;
  const int generation_;
};

class DeviceEvent {
 public:
  static Result<std::unique_ptr<DeviceEvent>> Create(Device& device);
  ~DeviceEvent();
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;

  Status Record(DeviceStream& stream);
  // Blocks the caller until the stream has passed the event.
  Status Wait();
  // Milliseconds from `begin` to this event. Requires: both are recorded and passed.
  Result<float> MillisecondsSince(const DeviceEvent& begin) const;

 private:
  DeviceEvent(Device& device, kernels::Event event);

  Device& device_;
  const kernels::Event event_;
  const int generation_;
};

}  // namespace thermocline::device
