// Measures the time of an op on the device, without the launch overhead.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/gpu/check.h"

namespace thermocline::gpu {

// Microseconds per call: the median over `rounds` replays of a graph of `calls` calls. `call(i,
// stream)` should use different memory for each i, so that caches do not hold it.
template <typename Call>
double MicrosecondsOf(const kernels::DeviceOps& ops, int calls, int rounds, const Call& call) {
  const kernels::DeviceRuntime& run = ops.runtime;
  kernels::Stream stream;
  kernels::Event begin, end;
  kernels::Graph graph;
  MustDo(ops, run.stream_create(&stream), "a stream");
  MustDo(ops, run.event_create(&begin), "an event");
  MustDo(ops, run.event_create(&end), "an event");
  MustDo(ops, run.graph_begin(stream), "capturing");
  for (int i = 0; i < calls; ++i) MustDo(ops, call(i, stream), "a timed call");
  MustDo(ops, run.graph_end(stream, &graph), "capturing");
  std::vector<double> us;
  for (int round = -1; round < rounds; ++round) {  // the first round warms up
    MustDo(ops, run.event_record(begin, stream), "timing");
    MustDo(ops, run.graph_launch(graph, stream), "a graph");
    MustDo(ops, run.event_record(end, stream), "timing");
    MustDo(ops, run.stream_synchronize(stream), "waiting");
    float ms = 0;
    MustDo(ops, run.event_elapsed(begin, end, &ms), "timing");
    if (round >= 0) us.push_back(1000.0 * static_cast<double>(ms) / calls);
  }
  MustDo(ops, run.graph_destroy(graph), "a graph");
  MustDo(ops, run.event_destroy(begin), "an event");
  MustDo(ops, run.event_destroy(end), "an event");
  MustDo(ops, run.stream_destroy(stream), "a stream");
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

}  // namespace thermocline::gpu
