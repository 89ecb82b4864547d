#include "tools/launch/signal_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "engine/base/check.h"

namespace thermocline::tools {
namespace {

constexpr std::array kWatched = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGCHLD};

// The handler writes to this pipe, so a signal that arrives before Wait is not lost.
int signal_pipe[2] = {-1, -1};
struct sigaction actions_before[kWatched.size()];

void OnSignal(int number, siginfo_t* info, void*) {
  const int error = errno;
  const ReceivedSignal signal{.number = number, .from_kernel = info->si_code == SI_KERNEL};
  // A pipe that is full holds more signals than anyone has sent by intention.
  [[maybe_unused]] const ssize_t written = ::write(signal_pipe[1], &signal, sizeof(signal));
  errno = error;
}

}  // namespace

SignalWatch::SignalWatch() {
  CHECK(signal_pipe[0] < 0);
  CHECK(::pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) == 0);
  struct sigaction action {};
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (std::size_t i = 0; i < kWatched.size(); ++i)
    ::sigaction(kWatched[i], &action, &actions_before[i]);
}

SignalWatch::~SignalWatch() {
  for (std::size_t i = 0; i < kWatched.size(); ++i)
    ::sigaction(kWatched[i], &actions_before[i], nullptr);
  for (int& fd : signal_pipe) {
    ::close(fd);
    fd = -1;
  }
}

std::optional<ReceivedSignal> SignalWatch::Wait(std::chrono::milliseconds patience) {
  pollfd readable{.fd = signal_pipe[0], .events = POLLIN, .revents = 0};
  ::poll(&readable, 1, static_cast<int>(patience.count()));
  ReceivedSignal signal{};
  if (::read(signal_pipe[0], &signal, sizeof(signal)) != sizeof(signal)) return std::nullopt;
  return signal;
}

}  // namespace thermocline::tools
