// A program that runs beside this process and whose output is read through a pipe.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace thermocline::base {

// Kill may be called by any thread, all else by one. A program that still runs at the end of this
// object is killed.
class PipedProcess {
 public:
  enum class Errors { kOwn, kWithOutput };  // where the program's standard error goes

  // Runs the program at the path words[0], without standard input. Unavailable: it cannot be
  // started.
  static Result<std::unique_ptr<PipedProcess>> Start(const std::vector<std::string>& words,
                                                     Errors errors);
  ~PipedProcess();
  PipedProcess(const PipedProcess&) = delete;
  PipedProcess& operator=(const PipedProcess&) = delete;

  // Bounds the program's own memory and its processor time from now on; beyond them allocations
  // fail and it is killed. It runs at the lowest priority.
  void Limit(std::uint64_t bytes, unsigned cpu_seconds);
  // Waits for output, or its end, at most so long; false: there is none yet.
  bool WaitForOutput(std::chrono::milliseconds most) const;
  // Returns the output so far, waiting for one byte at least; "" = the program has closed its
  // output.
  std::string Read();
  // Ends the program, if it runs.
  void Kill();
  // Waits for the program's end. Returns its exit code, or -1 if a signal ended it.
  int Wait();

 private:
  PipedProcess(pid_t pid, int output) : pid_(pid), output_(output) {}

  Mutex mutex_;
  pid_t pid_ GUARDED_BY(mutex_);  // 0 = it has ended
  const int output_;
};

}  // namespace thermocline::base
