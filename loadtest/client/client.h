// The interface between the load and a protocol.
#pragma once

#include <atomic>
#include <functional>

#include "loadtest/client/run_clock.h"
#include "loadtest/workload/answer.h"
#include "loadtest/workload/request.h"

namespace thermocline::loadtest {

// Live counts for the progress line.
struct ChunkCounter {
  std::atomic<std::uint64_t> chunks = 0;
};

// Sends requests and reads their answers. I/O thread only.
class Client {
 public:
  using Done = std::function<void(Answer)>;
  virtual ~Client() = default;
  // Calls `done` once, on the I/O thread, after Send has returned.
  virtual void Send(Request request, double t_scheduled, Done done) = 0;
  // Ends every running request with `outcome`.
  virtual void EndAll(Outcome outcome) = 0;
  // From now on, times are counted from the clock's start.
  virtual void SetClock(RunClock clock) = 0;
  virtual const ChunkCounter& chunk_counter() const = 0;
};

}  // namespace thermocline::loadtest
