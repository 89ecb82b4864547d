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

// A thread to come back to.
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
  workers.Post("b", io_.get_executor(), [&] { ++done; }, {});  // nobody asks what became of it
  running.get_future().wait();
  std::thread stopping([&] { workers.Stop(); });
  // While the first one runs, only what comes after Stop is dropped at once.
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

}  // namespace
}  // namespace thermocline::server
