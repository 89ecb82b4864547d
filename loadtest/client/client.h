// The seam between the load and a protocol.
#pragma once

#include <atomic>
#include <functional>

#include "loadtest/client/run_clock.h"
#include "loadtest/workload/answer.h"
#include "loadtest/workload/request.h"

namespace thermocline::loadtest {

// The counts so far, for the progress line.
struct Pulse {
  std::atomic<std::uint64_t> chunks = 0;
};

// Sends requests and reads their answers. I/O thread only.
class Client {
 public:
  using Done = std::function<void(Answer)>;
  virtual ~Client() = default;
  // `done` is called once, on the I/O thread, and not before Send has returned.
  virtual void Send(Request request, double t_scheduled, Done done) = 0;
  // Ends every request under way: their outcome is `outcome`.
  virtual void EndAll(Outcome outcome) = 0;
  // Times are counted from the clock's beginning from now on.
  virtual void SetClock(RunClock clock) = 0;
  virtual const Pulse& pulse() const = 0;
};

}  // namespace thermocline::loadtest
