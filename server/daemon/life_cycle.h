// The daemon's states from loading to the end: signals, systemd's notifications, the watchdog, the
// drain.
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

// SIGTERM and SIGINT drain: running answers may continue for server.drain_timeout_s, new work is
// rejected, then the io_context stops; a second signal stops it at once. During loading the process
// ends at once, since it serves no requests yet. SIGHUP reloads. Thread-safe except for OnDrain and
// Start.
class LifeCycle : public std::enable_shared_from_this<LifeCycle> {
 public:
  LifeCycle(boost::asio::io_context& io, Service& service, Reloader& reloader);

  // Calls `hook` at the start of a drain. Requires: Start was not called.
  void OnDrain(std::function<void()> hook) { drain_hooks_.push_back(std::move(hook)); }
  void Start();
  // Called when the model is loaded and has generated a first token.
  void Ready();
  void BeginDrain();

 private:
  using Clock = std::chrono::steady_clock;

  void WaitForSignal();
  void OnSignal(int signal);
  void Reload();
  // Reports the progress of loading to systemd, and then the engine's.
  void Supervise();
  void Drain();
  void PollDrain();
  // Stops the io_context or, while loading, ends the process.
  void Stop();
  std::string StatusText() const;

  boost::asio::io_context& io_;
  Service& service_;
  Reloader& reloader_;
  std::vector<std::function<void()>> drain_hooks_;
  // The members below are used on the strand only.
  boost::asio::strand<boost::asio::io_context::executor_type> strand_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer supervision_, drain_poll_;
  bool ready_ = false;
  bool draining_ = false;
  double last_progress_ = -1;
  std::optional<std::chrono::microseconds> watchdog_period_;
  std::optional<ProgressWatch> watch_;
  bool stalled_ = false;
  // State of the drain.
  bool cut_off_ = false;
  int idle_polls_ = 0;
  Clock::time_point deadline_;
};

}  // namespace thermocline::server
