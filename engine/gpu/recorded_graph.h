// Work that is recorded once for a key, which it depends on, and replayed while the key stays the
// same.
#pragma once

#include <memory>
#include <utility>

#include "engine/device/stream.h"

namespace thermocline::gpu {

// Decode thread only. Key: copyable, with ==.
template <typename Key>
class RecordedGraph {
 public:
  // Launches the work that put() enqueues for `key`. put, which returns Status, is called only if
  // `key` differs from that of the last recording. Errors: put's, or Unavailable.
  template <typename Put>
  Status Launch(device::DeviceStream& stream, const Key& key, const Put& put) {
    if (graph_ == nullptr || key_ != key) RETURN_IF_ERROR(Record(stream, key, put));
    return stream.Launch(*graph_);
  }
  // Called before the device is reset.
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
