// From loading to the last answer: signals, what systemd is told, the watchdog, the drain.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include "server/core/service.h"
#include "server/daemon/reload.h"
#include "server/daemon/watchdog.h"

namespace thermocline::server {

// SIGTERM and SIGINT drain: running answers may go on for server.drain_timeout_s, new work is
// refused, then the io_context stops; a second one stops it at once. While the model is loading the
// process ends instead: nothing is served yet. SIGHUP reloads. Thread-safe
// but for OnDrain and Start.
class LifeCycle : public std::enable_shared_from_this<LifeCycle> {
 public:
  LifeCycle(boost::asio::io_context& io, Service& service, Reloader& reloader);

  // `hook` is called at the first moment of a drain. Before Start.
  void OnDrain(std::function<void()> hook) { drain_hooks_.push_back(std::move(hook)); }
  void Start();
  // The model is loaded and has said a first token.
  void Ready();
  void BeginDrain();

 private:
  using Clock = std::chrono::steady_clock;

  void WaitForSignal();
  void OnSignal(int signal);
  void Reload();
  // Tells systemd how far loading is, then that the engine gets on.
  void Supervise();
  void Drain();
  void PollDrain();
  // Ends the io_context, or, while loading, the process.
  void Stop();
  std::string StatusText() const;

  boost::asio::io_context& io_;
  Service& service_;
  Reloader& reloader_;
  std::vector<std::function<void()>> drain_hooks_;
  // Everything below is the strand's.
  boost::asio::strand<boost::asio::io_context::executor_type> strand_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer supervision_, drain_poll_;
  bool ready_ = false;
  bool draining_ = false;
  double last_progress_ = -1;
  std::optional<std::chrono::microseconds> watchdog_period_;
  std::optional<ProgressWatch> watch_;
  bool stalled_ = false;
  // The drain's state.
  bool cut_off_ = false;
  int idle_polls_ = 0;
  Clock::time_point deadline_;
};

}  // namespace thermocline::server
