#include "server/core/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "engine/base/interruption.h"

namespace thermocline::server {
namespace {

// An io_context with a thread, for continuations.
class WorkersTest : public testing::Test {
 protected:
  ~WorkersTest() override {
    guard_.reset();
    thread_.join();
  }

  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_{
      io_.get_executor()};
  std::thread thread_{[this] { io_.run(); }};
};

// A task waits here until the test has posted the later tasks.
class Gate {
 public:
  void Pass() {
    arrived_.set_value();
    while (!open_) std::this_thread::yield();
  }
  void AwaitArrival() { arrived_.get_future().wait(); }
  void Open() { open_ = true; }

 private:
  std::promise<void> arrived_;
  std::atomic<bool> open_ = false;
};

// Appends `client` to `order` so many times, and yields to others after each.
void Steps(std::string& order, char client, int times) {
  for (int i = 0; i < times; ++i) {
    order += client;
    base::Interrupted();
  }
}

TEST_F(WorkersTest, WhatFollowsRunsWhereItWasAskedFor) {
  Workers workers(2);
  std::promise<std::thread::id> worked, followed;
  bool dropped = false;
  workers.Post(
      "a", io_.get_executor(), [&] { worked.set_value(std::this_thread::get_id()); },
      [&] { followed.set_value(std::this_thread::get_id()); }, [&] { dropped = true; });
  EXPECT_NE(worked.get_future().get(), thread_.get_id());
  EXPECT_EQ(followed.get_future().get(), thread_.get_id());
  workers.Stop();
  EXPECT_FALSE(dropped);
}

TEST_F(WorkersTest, StopInterruptsWhatRunsAndDropsTheRest) {
  std::atomic<int> done = 0, ran = 0, dropped = 0;
  std::atomic<bool> stopped = false;
  std::promise<void> running, go_on;
  Workers workers(1);
  workers.Post(
      "a", io_.get_executor(),
      [&] {
        EXPECT_FALSE(base::Interrupted());
        running.set_value();
        go_on.get_future().wait();
        EXPECT_TRUE(base::Interrupted());
        ++done;
      },
      [&] { ++ran; }, [&] { ++dropped; });
  for (int i = 0; i < 3; ++i) {
    workers.Post(
        "a", io_.get_executor(), [&] { ++done; }, [&] { ++ran; }, [&] { ++dropped; });
  }
  workers.Post("b", io_.get_executor(), [&] { ++done; }, {});  // without a continuation
  running.get_future().wait();
  std::thread stopping([&] { workers.Stop(); });
  // While the first task runs, only tasks posted after Stop are dropped at once.
  while (!stopped) {
    workers.Post(
        "a", io_.get_executor(), [] {}, {}, [&] { stopped = true; });
    std::this_thread::yield();
  }
  EXPECT_EQ(dropped, 0);
  go_on.set_value();
  stopping.join();
  EXPECT_EQ(done, 1);
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(dropped, 3);
  EXPECT_FALSE(base::Interrupted());
}

TEST_F(WorkersTest, ClientsTakeTurns) {
  std::string order;
  std::promise<void> running, go_on, done;
  Workers workers(1);
  workers.Post("a", io_.get_executor(),
               [&] {
                 running.set_value();
                 go_on.get_future().wait();
               },
               {});
  running.get_future().wait();
  for (const char* client : {"a", "a", "a", "b", "c", "b"})
    workers.Post(client, io_.get_executor(), [&order, client] { order += client; }, {});
  workers.Post("d", io_.get_executor(), [] {}, {});
  workers.Post("a", io_.get_executor(), [&] { done.set_value(); }, {});
  go_on.set_value();
  done.get_future().wait();
  EXPECT_EQ(order, "abcaba");
}

// Checks for interrupts as often as long work does, until `until` holds.
void WorkUntil(const std::atomic<bool>& until) {
  while (!until && !base::Interrupted()) std::this_thread::yield();
}

constexpr std::chrono::microseconds kShortestTurn{0};

TEST_F(WorkersTest, AnotherClientsTaskRunsWithinALongOne) {
  Workers workers({.running = 2, .begun = 3, .turn = kShortestTurn});
  std::atomic<bool> other_ran = false;
  std::atomic<int> begun = 0, ended = 0;
  std::promise<void> all;
  for (int i = 0; i < 8; ++i) {
    workers.Post(
        "a", io_.get_executor(),
        [&] {
          ++begun;
          WorkUntil(other_ran);
        },
        [&] {
          if (++ended == 8) all.set_value();
        });
  }
  while (begun < 2) std::this_thread::yield();
  workers.Post("b", io_.get_executor(),
               [&] {
                 EXPECT_EQ(begun, 2) << "a client that is alone begins no more than can run";
                 other_ran = true;
               },
               {});
  all.get_future().wait();
  workers.Stop();
  EXPECT_EQ(ended, 8);
}

TEST_F(WorkersTest, WhatPausesGoesOnInItsTurn) {
  Workers workers({.running = 1, .begun = 3, .turn = kShortestTurn});
  std::string order;  // written by one thread at a time
  std::promise<void> done;
  Gate gate;
  std::atomic<int> ended = 0;
  const auto then = [&] {
    if (++ended == 3) done.set_value();
  };
  workers.Post(
      "a", io_.get_executor(),
      [&] {
        gate.Pass();
        Steps(order, 'a', 3);
      },
      then);
  gate.AwaitArrival();
  workers.Post(
      "b", io_.get_executor(), [&] { Steps(order, 'b', 3); }, then);
  workers.Post(
      "c", io_.get_executor(), [&] { Steps(order, 'c', 3); }, then);
  gate.Open();
  done.get_future().wait();
  EXPECT_EQ(order, "abcabcabc");
}

TEST_F(WorkersTest, NobodyPausesForWhatCannotBegin) {
  Workers workers({.running = 1, .begun = 1, .turn = kShortestTurn});
  std::promise<void> done;
  Gate gate;
  std::string order;
  workers.Post("a", io_.get_executor(),
               [&] {
                 gate.Pass();
                 for (int i = 0; i < 100; ++i) base::Interrupted();
                 order += 'a';
               },
               {});
  gate.AwaitArrival();
  workers.Post(
      "b", io_.get_executor(), [&] { order += 'b'; }, [&] { done.set_value(); });
  gate.Open();
  done.get_future().wait();
  EXPECT_EQ(order, "ab");
}

TEST_F(WorkersTest, LargeRequestsAreBegunWithinTheBound) {
  Workers workers({.running = 1, .begun = 8, .turn = kShortestTurn, .bytes_begun = 100});
  std::string order;
  std::promise<void> done;
  Gate gate;
  workers.Post(
      "a", io_.get_executor(),
      [&] {
        gate.Pass();
        Steps(order, 'a', 2);
      },
      {}, {}, 1000);  // alone in its lane, any size
  gate.AwaitArrival();
  workers.Post(
      "b", io_.get_executor(), [&] { Steps(order, 'b', 2); }, {}, {}, 60);
  workers.Post(
      "c", io_.get_executor(), [&] { Steps(order, 'c', 2); }, [&] { done.set_value(); }, {}, 60);
  gate.Open();
  done.get_future().wait();
  EXPECT_EQ(order, "aabbcc");
}

TEST_F(WorkersTest, ALargeTaskBeginsAlthoughSmallerOnesKeepComing) {
  Workers workers({.running = 2, .begun = 8, .bytes_begun = 800});  // 600 for large ones
  std::string order;
  std::promise<void> done, passed;
  int ended = 0;
  Gate first, second;
  const auto then = [&] {
    if (++ended == 4) done.set_value();
  };
  workers.Post(
      "a", io_.get_executor(), [&] { first.Pass(); }, {}, {}, 320);
  workers.Post(
      "b", io_.get_executor(), [&] { second.Pass(); }, {}, {}, 250);
  first.AwaitArrival();
  second.AwaitArrival();
  workers.Post(
      "large", io_.get_executor(), [&] { order += 'L'; }, then, {}, 580);
  for (const char* client : {"c", "d", "e"}) {  // one has room beside "b"
    workers.Post(
        client, io_.get_executor(), [&order, client] { order += client; }, then, {}, 320);
  }
  workers.Post(
      "small", io_.get_executor(), [] {}, [&] { passed.set_value(); });
  first.Open();
  passed.get_future().wait();
  second.Open();
  done.get_future().wait();
  EXPECT_EQ(order, "Lcde");
}

TEST_F(WorkersTest, AHugeTaskKeepsNoSmallOneOut) {
  Workers workers({.running = 1, .begun = 8, .turn = kShortestTurn, .bytes_begun = 80});
  std::string order;
  std::promise<void> done;
  Gate gate;
  workers.Post(
      "a", io_.get_executor(),
      [&] {
        gate.Pass();
        Steps(order, 'a', 2);
      },
      [&] { done.set_value(); }, {}, 1000);
  gate.AwaitArrival();
  workers.Post(
      "b", io_.get_executor(), [&] { order += 'b'; }, {}, {}, 10);
  gate.Open();
  done.get_future().wait();
  EXPECT_EQ(order, "aba");
}

TEST_F(WorkersTest, AClientWithABegunTaskReservesNothing) {
  Workers workers({.running = 1, .begun = 8, .turn = kShortestTurn, .bytes_begun = 80});
  std::string order;
  std::promise<void> done;
  Gate gate;
  workers.Post(
      "a", io_.get_executor(),
      [&] {
        gate.Pass();
        Steps(order, 'a', 2);
      },
      {}, {}, 40);
  gate.AwaitArrival();
  workers.Post(
      "a", io_.get_executor(), [&] { order += 'A'; }, [&] { done.set_value(); }, {}, 40);
  workers.Post(
      "b", io_.get_executor(), [&] { order += 'b'; }, {}, {}, 20);
  gate.Open();
  done.get_future().wait();
  EXPECT_EQ(order, "abaA");
}

TEST_F(WorkersTest, StopEndsWhatPauses) {
  Workers workers({.running = 1, .begun = 3, .turn = kShortestTurn});
  const std::atomic<bool> never = false;
  std::atomic<int> begun = 0, followed = 0, dropped = 0;
  for (const char* client : {"a", "b", "c", "d"}) {
    workers.Post(
        client, io_.get_executor(),
        [&] {
          ++begun;
          WorkUntil(never);
        },
        [&] { ++followed; }, [&] { ++dropped; });
  }
  while (begun < 3) std::this_thread::yield();
  workers.Stop();
  EXPECT_EQ(begun, 3);
  EXPECT_EQ(followed, 3);
  EXPECT_EQ(dropped, 1);
}

}  // namespace
}  // namespace thermocline::server
