// Generates the load: starts requests when a user is free (closed loop) or at their scheduled time
// (open loop), and waits for all answers.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "loadtest/client/client.h"
#include "loadtest/workload/workload.h"

namespace thermocline::loadtest {

// The load: either `users` or `arrivals`.
struct LoadShape {
  int users = 0;                       // closed loop: concurrent requests
  ArrivalProcess* arrivals = nullptr;  // open loop
  int in_flight_max = 1024;  // open loop: further requests wait here, and their time counts
  double duration_s = 0;     // no request starts later
  std::optional<std::uint64_t> requests_max = {};
  double drain_s = 0;  // after duration_s, for running answers; later ones are timeouts
  std::uint64_t first_id = 0;
};

// The progress of a run.
struct Pace {
  double now_s = 0;
  std::uint64_t started = 0;
  int in_flight = 0;
  std::size_t waiting = 0;  // scheduled, not sent
};

// One run. I/O thread only, which is the caller of Run.
class Driver {
 public:
  struct Listener {
    std::function<void(const Answer&)> on_answer;
    std::function<void(const Pace&)> on_tick;  // twice a second
  };
  Driver(boost::asio::io_context& io, Client& client, Workload& workload, const LoadShape& shape,
         Listener listener);

  // Returns after the last answer. SIGINT and SIGTERM end the run early; running requests then
  // count as cancelled.
  void Run();

  std::uint64_t started() const { return started_; }
  bool interrupted() const { return interrupted_; }

 private:
  bool closed() const { return shape_.arrivals == nullptr; }
  bool MayCount() const;  // the limit on requests allows another one
  bool MayBegin() const;  // and so does the time
  void Begin();
  void BeginUser();
  void NextArrival();
  void OnArrival(double t_scheduled);
  void Send(Request request, double t_scheduled);
  void OnAnswer(const Answer& answer);
  void AfterAnswer(const Answer& answer);
  void Pause(double seconds, std::function<void()> then);
  Request NextRequest() { return workload_.Next(shape_.first_id + next_id_++); }
  void Tick();
  void EndEarly(Outcome outcome);
  void EndIfDone();

  boost::asio::io_context& io_;
  Client& client_;
  Workload& workload_;
  const LoadShape shape_;
  const Listener listener_;
  RunClock clock_;
  boost::asio::steady_timer arrival_, tick_, end_;
  boost::asio::signal_set signals_;
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> guard_;
  std::deque<double> waiting_;                                   // scheduled times
  std::set<std::shared_ptr<boost::asio::steady_timer>> pauses_;  // shared with their handlers
  std::uint64_t started_ = 0, next_id_ = 0;
  int in_flight_ = 0;
  bool arrivals_done_ = false, stopping_ = false, interrupted_ = false, done_ = false;
};

}  // namespace thermocline::loadtest
