// The signals that a process gets while its child processes run.
#pragma once

#include <chrono>
#include <optional>

namespace thermocline::tools {

struct ReceivedSignal {
  int number;
  // The kernel sent it, as for Ctrl-C: then each process of the terminal's group has got it.
  bool from_kernel;
};

// Receives SIGINT, SIGQUIT, SIGTERM, SIGHUP and SIGCHLD in place of their actions. At most one
// exists. Other programs that are started get the actions of before.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // The next signal; nullopt if none arrives within `patience`.
  std::optional<ReceivedSignal> Wait(std::chrono::milliseconds patience);
};

}  // namespace thermocline::tools
