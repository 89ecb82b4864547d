// Work that is recorded once for what it depends on, its key, and replayed while that stays.
#pragma once

#include <memory>
#include <utility>

#include "engine/device/stream.h"

namespace thermocline::gpu {

// Decode thread only. Key: copyable, with ==.
template <typename Key>
class RecordedGraph {
 public:
  // Launches what put() puts on the stream for `key`: put, which returns Status, is called when
  // `key` is not that of the last recording. Errors: put's, or Unavailable.
  template <typename Put>
  Status Launch(device::DeviceStream& stream, const Key& key, const Put& put) {
    if (graph_ == nullptr || key_ != key) RETURN_IF_ERROR(Record(stream, key, put));
    return stream.Launch(*graph_);
  }
  // Before the device is reset.
  void Drop() { graph_.reset(); }

 private:
  template <typename Put>
  Status Record(device::DeviceStream& stream, const Key& key, const Put& put) {
    graph_.reset();
    RETURN_IF_ERROR(stream.BeginGraph());
    const Status done = put();
    auto graph = stream.EndGraph();
    RETURN_IF_ERROR(done);
    ASSIGN_OR_RETURN(graph_, std::move(graph));
    key_ = key;
    return OkStatus();
  }

  std::unique_ptr<device::DeviceGraph> graph_;
  Key key_ = {};
};

}  // namespace thermocline::gpu
