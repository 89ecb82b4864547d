#include "engine/device/stream.h"

#include <tuple>

namespace thermocline::device {

DeviceStream::DeviceStream(Device& device, kernels::Stream stream)
    : device_(device), stream_(stream), generation_(device.generation()) {}

Result<std::unique_ptr<DeviceStream>> DeviceStream::Create(Device& device) {
  kernels::Stream stream;
  RETURN_IF_ERROR(device.Check(device.runtime().stream_create(&stream), "creating a stream"));
  return std::unique_ptr<DeviceStream>(new DeviceStream(device, stream));
}

DeviceStream::~DeviceStream() {
  if (generation_ != device_.generation()) return;
  std::ignore = device_.runtime().stream_destroy(stream_);
}

Status DeviceStream::Synchronize() {
  return device_.Check(device_.runtime().stream_synchronize(stream_), "waiting for a stream");
}

Status DeviceStream::CopyToDevice(void* to, const void* from_host, std::size_t bytes) {
  return device_.Check(device_.runtime().copy_to_device(to, from_host, bytes, stream_),
                       "copying to the GPU");
}

Status DeviceStream::CopyToHost(void* to_host, const void* from, std::size_t bytes) {
  return device_.Check(device_.runtime().copy_to_host(to_host, from, bytes, stream_),
                       "copying from the GPU");
}

Status DeviceStream::CopyOnDevice(void* to, const void* from, std::size_t bytes) {
  return device_.Check(device_.runtime().copy_on_device(to, from, bytes, stream_),
                       "copying within the GPU");
}

Status DeviceStream::Fill(void* to, int byte, std::size_t bytes) {
  return device_.Check(device_.runtime().fill(to, byte, bytes, stream_), "filling GPU memory");
}

Status DeviceStream::BeginGraph() {
  return device_.Check(device_.runtime().graph_begin(stream_), "beginning to record a graph");
}

Result<std::unique_ptr<DeviceGraph>> DeviceStream::EndGraph() {
  kernels::Graph graph;
  RETURN_IF_ERROR(
      device_.Check(device_.runtime().graph_end(stream_, &graph), "ending the record of a graph"));
  return std::unique_ptr<DeviceGraph>(new DeviceGraph(device_, graph));
}

Status DeviceStream::Launch(const DeviceGraph& graph) {
  return device_.Check(device_.runtime().graph_launch(graph.graph_, stream_), "launching a graph");
}

DeviceGraph::DeviceGraph(Device& device, kernels::Graph graph)
    : device_(device), graph_(graph), generation_(device.generation()) {}

DeviceGraph::~DeviceGraph() {
  if (generation_ != device_.generation()) return;
  std::ignore = device_.runtime().graph_destroy(graph_);
}

DeviceEvent::DeviceEvent(Device& device, kernels::Event event)
    : device_(device), event_(event), generation_(device.generation()) {}

Result<std::unique_ptr<DeviceEvent>> DeviceEvent::Create(Device& device) {
  kernels::Event event;
  RETURN_IF_ERROR(device.Check(device.runtime().event_create(&event), "creating an event"));
  return std::unique_ptr<DeviceEvent>(new DeviceEvent(device, event));
}

DeviceEvent::~DeviceEvent() {
  if (generation_ != device_.generation()) return;
  std::ignore = device_.runtime().event_destroy(event_);
}

Status DeviceEvent::Record(DeviceStream& stream) {
  return device_.Check(device_.runtime().event_record(event_, stream.handle()),
                       "recording an event");
}

Status DeviceEvent::Wait() {
  return device_.Check(device_.runtime().event_wait(event_), "waiting for an event");
}

Result<float> DeviceEvent::MillisecondsSince(const DeviceEvent& begin) const {
  float ms = 0;
  RETURN_IF_ERROR(
      device_.Check(device_.runtime().event_elapsed(begin.event_, event_, &ms), "timing an event"));
  return ms;
}

}  // namespace thermocline::device
