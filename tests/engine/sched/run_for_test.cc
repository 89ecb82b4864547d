#include "engine/sched/run_for.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

namespace thermocline::sched {
namespace {

constexpr int kItems = 8;

struct Calls {
  int begun;
  std::array<std::atomic<int>, kItems> of = {};
};

// Each call runs until `call_s` have passed since the first began.
void CallFor(double seconds, double call_s, Calls& calls) {
  base::WorkerPool pool(2);
  const base::Stopwatch begun;
  calls.begun = RunFor(pool, kItems, seconds, [&](int item) {
    ++calls.of[static_cast<std::size_t>(item)];
    while (begun.Seconds() < call_s) std::this_thread::yield();
  });
}

TEST(RunFor, BeginsEveryItemOnceInTime) {
  Calls calls;
  CallFor(3600, 0, calls);
  EXPECT_EQ(calls.begun, kItems);
  for (const auto& count : calls.of) EXPECT_EQ(count, 1);
}

// The first item begins at any time, so that there is progress.
TEST(RunFor, BeginsTheFirstItemWithoutAnyTime) {
  Calls calls;
  CallFor(0, 0, calls);
  EXPECT_EQ(calls.begun, 1);
  EXPECT_EQ(calls.of[0], 1);
}

// Calls of 0.1 s by two threads: each begins one, and its time is over when that ends.
TEST(RunFor, BeginsNothingMoreWhenTheTimeHasPassed) {
  Calls calls;
  CallFor(0.05, 0.1, calls);
  EXPECT_GE(calls.begun, 1);
  EXPECT_LE(calls.begun, 2);
  for (int item = 0; item < kItems; ++item)
    EXPECT_EQ(calls.of[static_cast<std::size_t>(item)], item < calls.begun);
}

}  // namespace
}  // namespace thermocline::sched
