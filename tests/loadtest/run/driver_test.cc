#include "loadtest/run/driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>

#include "loadtest/measure/recorder.h"

namespace thermocline::loadtest {
namespace {

namespace asio = boost::asio;

// A server that answers one request after the other, each in `service_s`, and stalls once.
class StallingServer : public Client {
 public:
  StallingServer(asio::io_context& io, double service_s, double stall_at, double stall_s)
      : timer_(io), service_s_(service_s), stall_at_(stall_at), stall_s_(stall_s) {}

  void Send(Request request, double t_scheduled, Done done) override {
    Answer answer;
    answer.id = request.id;
    answer.kind = request.kind;
    answer.t_scheduled = t_scheduled;
    answer.t_sent = clock_.Now();
    queue_.push_back({std::move(answer), std::move(done)});
    if (queue_.size() == 1) Serve();
  }
  void EndAll(Outcome outcome) override {
    ended_as_ = outcome;
    timer_.cancel();
  }
  void SetClock(RunClock clock) override { clock_ = clock; }
  const ChunkCounter& chunk_counter() const override { return chunk_counter_; }
  std::optional<double> stall_end;

 private:
  void Serve() {
    double seconds = service_s_;
    if (!stall_end.has_value() && clock_.Now() >= stall_at_) {
      seconds = stall_s_;
      stall_end = clock_.Now() + stall_s_;
    }
    timer_.expires_after(ToDuration(seconds));
    timer_.async_wait([this](boost::system::error_code) {
      auto [answer, done] = std::move(queue_.front());
      queue_.pop_front();
      answer.t_last = clock_.Now();
      answer.t_first_content = answer.t_last;
      answer.outcome = ended_as_.value_or(Outcome::kOk);
      if (!queue_.empty()) Serve();
      done(std::move(answer));
    });
  }

  asio::steady_timer timer_;
  const double service_s_, stall_at_, stall_s_;
  RunClock clock_;
  ChunkCounter chunk_counter_;
  std::optional<Outcome> ended_as_;
  std::deque<std::pair<Answer, Done>> queue_;
};

struct Outcomes {
  std::vector<Answer> answers;
  std::uint64_t started;
};

Outcomes Drive(asio::io_context& io, Client& client, const LoadShape& shape,
               const WorkloadOptions& options = {}) {
  Outcomes result;
  const auto workload = MakeWorkload(options);
  Driver driver(io, client, *workload, shape,
                {.on_answer = [&](const Answer& answer) { result.answers.push_back(answer); },
                 .on_tick = [](const Pace&) {}});
  driver.Run();
  result.started = driver.started();
  return result;
}

// No coordinated omission: requests that were due during the stall count from their due time, even
// if the tool, with one connection, could send them only later.
TEST(DriverTest, AStallShowsInEveryRequestThatWasDueMeanwhile) {
  constexpr double kStall = 1, kRate = 50;
  for (const int in_flight_max : {1, 1000}) {
    asio::io_context io;
    StallingServer server(io, 0.0005, 0.2, kStall);
    const auto arrivals = ConstantArrivals(kRate);
    const auto [answers, started] = Drive(io, server,
                                          {.arrivals = arrivals.get(),
                                           .in_flight_max = in_flight_max,
                                           .duration_s = 1.6,
                                           .drain_s = 60});
    ASSERT_EQ(answers.size(), 80u);
    ASSERT_TRUE(server.stall_end.has_value());
    const double stall_end = *server.stall_end;
    Samples open, as_sent;
    int due_meanwhile = 0;
    for (const Answer& answer : answers) {
      EXPECT_EQ(answer.outcome, Outcome::kOk);
      open.Add(*LatenciesOf(answer, true).ttft);
      as_sent.Add(*LatenciesOf(answer, false).ttft);
      if (answer.t_scheduled <= stall_end - kStall || answer.t_scheduled >= stall_end) continue;
      ++due_meanwhile;
      EXPECT_GE(*LatenciesOf(answer, true).ttft, stall_end - answer.t_scheduled);
    }
    if (due_meanwhile == 0) continue;  // the test itself stalled for longer
    EXPECT_GE(open.Percentile(50), kStall / 10);
    if (in_flight_max == 1) {
      EXPECT_LT(as_sent.Percentile(90), open.Percentile(50));
    }
  }
}

TEST(DriverTest, AClosedLoopKeepsItsUsersAndItsCount) {
  asio::io_context io;
  StallingServer server(io, 0.0002, 1e9, 0);
  const auto [answers, started] =
      Drive(io, server, {.users = 4, .duration_s = 60, .requests_max = 103});
  EXPECT_EQ(started, 103u);
  ASSERT_EQ(answers.size(), 103u);
  std::vector<std::uint64_t> ids;
  for (const Answer& answer : answers) ids.push_back(answer.id);
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end());
  EXPECT_EQ(ids.back(), 102u);
}

// The answer and the tick behind it are due while the thread is kept busy, so that the tick's
// handler is in the queue when the run ends.
TEST(DriverTest, ARunEndsAlthoughATickIsDueWithItsLastAnswer) {
  asio::io_context io;
  StallingServer server(io, 0.49, 1e9, 0);
  asio::steady_timer busy(io, std::chrono::milliseconds(300));
  busy.async_wait([](boost::system::error_code) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  });
  bool hangs = false;
  std::atomic<bool> ended = false;
  std::thread watchdog([&] {
    for (int i = 0; i < 200 && !ended; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    hangs = !ended;
    if (hangs) io.stop();
  });
  const auto [answers, started] =
      Drive(io, server, {.users = 1, .duration_s = 60, .requests_max = 1});
  ended = true;
  watchdog.join();
  EXPECT_FALSE(hangs);
  EXPECT_EQ(answers.size(), 1u);
}

TEST(DriverTest, WhatIsNotAnsweredAfterTheEndIsATimeout) {
  asio::io_context io;
  StallingServer server(io, 0.001, 0, 3600);
  const auto arrivals = ConstantArrivals(100);
  const auto [answers, started] =
      Drive(io, server,
            {.arrivals = arrivals.get(), .in_flight_max = 2, .duration_s = 0.1, .drain_s = 0.1});
  EXPECT_EQ(answers.size(), 10u);
  for (const Answer& answer : answers) EXPECT_EQ(answer.outcome, Outcome::kTimeout);
}

TEST(DriverTest, ConversationsHaveTheirTurnsInOrder) {
  asio::io_context io;
  StallingServer server(io, 0.0002, 1e9, 0);
  const auto [answers, started] =
      Drive(io, server, {.users = 3, .duration_s = 60, .requests_max = 90},
            {.kind = WorkloadKind::kMultiTurn, .turns = 5, .think_s = 0.001});
  EXPECT_EQ(started, answers.size());
  EXPECT_GE(started, 80u);
}

}  // namespace
}  // namespace thermocline::loadtest
