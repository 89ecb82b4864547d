// Persistent kernel threads that share out the items of one loop at a time.
//
// A token starts some hundred loops, so waking threads by the kernel each time would cost more than
// the work; but a pool that only spins starves other processes, and itself if the scheduler takes a
// spinning thread for a busy one. So a worker without work first pauses, then yields its processor
// between polls (an idle virtual processor would take long to wake), then parks. A loop ends when
// its items are done, not when every worker has seen it: a preempted worker costs nothing unless it
// holds an item.
//
// Each thread processes its own run of neighbouring items, and steals from the other runs when it
// has finished: neighbouring items are neighbouring weights, and one long stream per thread is
// faster (up to 48 GB/s on two Zen 4 cores) than streams that alternate every 72 KB (30 GB/s).
//
// Measured with one other busy process on two cores: docs/benchmarks.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "engine/base/index.h"

namespace thermocline::base {

// Run may be called from one thread at a time (the decode thread). The caller works as well.
class WorkerPool {
 public:
  // `threads` counts the caller: 1 means no further thread.
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return base::IntSize(workers_) + 1; }
  // From now on loops use this many threads, including the caller's, and the others rest, because
  // other work needs the processors. Requires: 1 <= active <= threads(); between loops.
  void SetActive(int active) {
    active_.store(active, std::memory_order_relaxed);
    active_.notify_all();
  }
  int active() const { return active_.load(std::memory_order_relaxed); }

  // Calls `body(item, thread)` once for each item in [0, items), in any order, on any thread; slow
  // threads process fewer. A std::bad_alloc of any item is rethrown when all are done.
  template <typename Body>
  void Run(int items, const Body& body) {
    const auto call = [](const void* context, int item, int thread) {
      (*static_cast<const Body*>(context))(item, thread);
    };
    RunLoop(items, call, &body);
  }

 private:
  using Call = void (*)(const void*, int, int);
  static constexpr int kItemsMax = (1 << 20) - 1024;  // a ticket's 20 bits, less a margin for late
                                                      // polls

  // A thread's run in the current loop: the loop's epoch, the run's end and its next item, in one
  // word, so that a thread that takes an item knows that it belongs to the loop. A loop cannot end
  // while a taken item is not done, so call_ and context_ are that loop's.
  struct Ticket {
    int end, next;
  };
  struct alignas(64) ItemRun {
    std::atomic<std::uint64_t> ticket{0};
  };
  static Ticket Unpack(std::uint64_t word);

  void Stop();
  void RunLoop(int items, Call call, const void* context);
  void RunBatch(int items, Call call, const void* context);
  void StartBatch(int items, Call call, const void* context);
  void WaitFor(int items);
  // Takes items of the current loop, from the thread's own run first, until there are none.
  void TakeItems(int thread);
  void WorkerMain(int thread);
  // Returns when the thread's run has items, or the pool ends.
  void WaitForWork(const ItemRun& run);
  // Takes the items of one run until there are none left; returns their number.
  int TakeRun(int run, int thread);
  static bool HasWork(const ItemRun& run) {
    const Ticket t = Unpack(run.ticket.load(std::memory_order_acquire));
    return t.next < t.end;
  }

  // Written by the caller before the tickets, read after an item is taken.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  std::atomic<int> active_;               // threads in use; written by the caller
  int first_ = 0;                         // item of the loop at which the batch begins
  std::uint64_t epoch_ = 0;               // caller only
  std::vector<ItemRun> runs_;             // one for each thread; never resized
  alignas(64) std::atomic<int> done_{0};  // items of the current loop that are done
  alignas(64) std::atomic<int> parked_{0};
  std::atomic<std::uint32_t> signal_{0};  // changes when parked workers must check for work
  std::atomic<bool> stop_{false};
  std::atomic<bool> no_memory_{false};  // for an item of this loop
  std::vector<std::thread> workers_;
};

}  // namespace thermocline::base
