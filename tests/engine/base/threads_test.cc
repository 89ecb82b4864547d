#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/base/bounded_queue.h"
#include "engine/base/worker_pool.h"

namespace thermocline::base {
namespace {

TEST(WorkerPool, RunsEveryItemOnceInEveryLoop) {
  for (const int threads : {1, 2, 4}) {
    WorkerPool pool(threads);
    for (int loop = 0; loop < 500; ++loop) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(loop % 37));
      pool.Run(static_cast<int>(seen.size()), [&](int item, int thread) {
        EXPECT_LT(thread, threads);
        ++seen[static_cast<std::size_t>(item)];
      });
      for (const auto& count : seen) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(WorkerPool, ParkedWorkersWakeAgain) {
  WorkerPool pool(2);
  std::atomic<int> total{0};
  for (int loop = 0; loop < 3; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than workers spin
    pool.Run(8, [&](int, int) { ++total; });
  }
  EXPECT_EQ(total, 24);
}

TEST(BoundedQueue, FullAndClosedSayNo) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.TryPush(2));
  EXPECT_FALSE(queue.TryPush(3));
  EXPECT_EQ(queue.Pop(), 1);
  queue.Close();
  EXPECT_FALSE(queue.TryPush(4));
  EXPECT_EQ(queue.Pop(), 2);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(BoundedQueue, PopWaitsForAPush) {
  BoundedQueue<int> queue(1);
  std::thread producer([&] { EXPECT_TRUE(queue.TryPush(7)); });
  EXPECT_EQ(queue.Pop(), 7);
  producer.join();
}

}  // namespace
}  // namespace thermocline::base
