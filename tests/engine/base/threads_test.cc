#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "engine/base/log_writer.h"
#include "engine/base/thread_priority.h"
#include "engine/base/worker_pool.h"

namespace thermocline::base {
namespace {

// A full disk lost lines, and nothing said so.
TEST(LogWriter, CountsLinesThatCannotBeWritten) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  auto* const writer = new LogWriter(full);  // lives as long as its thread
  writer->Push("before the thread\n");
  EXPECT_EQ(writer->dropped(), 1);
  writer->Start();
  writer->Push("behind it\n");
  writer->Flush(std::chrono::seconds(30));
  EXPECT_EQ(writer->dropped(), 2);
}

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

TEST(WorkerPool, LoopsLongerThanATicketCountsRunWhole) {
  WorkerPool pool(3);
  constexpr int kItems = 2'500'000;
  std::vector<std::uint8_t> seen(kItems);
  pool.Run(kItems, [&](int item, int) { ++seen[static_cast<std::size_t>(item)]; });
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), kItems);
}

TEST(WorkerPool, ThreadsWalkThroughRunsOfTheirOwn) {
  // While all threads are equally slow, none steals items: thread t's items are consecutive.
  WorkerPool pool(2);
  std::vector<int> owner(40);
  std::atomic<int> here{0};
  pool.Run(40, [&](int item, int thread) {
    if (item % 20 == 0) {  // both runs start before either continues
      ++here;
      while (here < 2) std::this_thread::yield();
    }
    owner[static_cast<std::size_t>(item)] = thread;
  });
  EXPECT_NE(owner[0], owner[20]);
}

// A thread's priority must not affect others: streams once waited for whole turns of the threads
// that parse long bodies.
TEST(ThreadPriority, IsOfOneThreadAlone) {
  const int own = ::getpriority(PRIO_PROCESS, 0), low = std::max(own, 7);
  int lowered = 0, shortened = -1;
  std::thread([&] {
    LowerPriority(7);
    lowered = ::getpriority(PRIO_PROCESS, 0);
    AskForShortTurns();
    shortened = ::getpriority(PRIO_PROCESS, 0);
  }).join();
  EXPECT_EQ(lowered, low);
  EXPECT_EQ(shortened, low);  // it affects only turns
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), own);
}

TEST(ThreadPriority, ShortTurnsAreThoseOfTheSystem) {
  std::array<std::uint64_t, 6> attributes = {};  // sched_attr: the fourth word is the runtime
  const auto turn = [&] {
    const auto got = ::syscall(SYS_sched_getattr, 0, attributes.data(), sizeof(attributes), 0);
    return got == 0 ? attributes[3] : 0;
  };
  std::uint64_t before = 0, after = 0;
  std::thread([&] {
    before = turn();
    AskForShortTurns();
    after = turn();
  }).join();
  if (before == 0) GTEST_SKIP() << "this kernel has no turns of SCHED_OTHER (6.12 and later have)";
  EXPECT_LT(after, before);
  EXPECT_EQ(after, 100'000u);
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

}  // namespace
}  // namespace thermocline::base
