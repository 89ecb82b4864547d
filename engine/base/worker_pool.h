// Persistent kernel threads that share out the items of one loop at a time.
//
// A token starts some hundred loops, so waking threads by the kernel each time would cost more than
// the work; but a pool that only spins starves its neighbours, and itself where the scheduler takes
// a spinning thread for a busy one. So a worker without work first pauses, then offers its
// processor to others between looks (an idle virtual processor would take long to wake), then
// parks. A loop ends when its items are done, not when every worker has seen it: a worker that the
// system has put aside costs nothing unless it holds an item.
//
// Measured with one other busy process on two cores: docs/benchmarks.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace thermocline::base {

// Run may be called from one thread at a time (the decode thread). The caller works too.
class WorkerPool {
 public:
  // `threads` counts the caller: 1 means no further thread.
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  static constexpr int kItemsMax = (1 << 20) - 1024;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls `body(item, thread)` once for each item in [0, items), in any order, on any thread.
  // Items are taken from a shared counter, so a slow thread takes fewer. Requires: items at most
  // kItemsMax.
  template <typename Body>
  void Run(int items, const Body& body) {
    const auto call = [](const void* context, int item, int thread) {
      (*static_cast<const Body*>(context))(item, thread);
    };
    RunLoop(items, call, &body);
  }

 private:
  using Call = void (*)(const void*, int, int);

  // One loop's epoch, its number of items and the next item to take, in one word: who takes an item
  // knows which loop it belongs to. A loop whose item is taken cannot end before it is done, so
  // call_ and context_ are that loop's.
  struct Ticket {
    std::uint32_t epoch;
    int items, next;
  };
  static Ticket Unpack(std::uint64_t word);

  void RunLoop(int items, Call call, const void* context);
  // Takes items of the current loop until there are none.
  void TakeItems(int thread);
  void WorkerMain(int thread);
  // Returns when there are items, or the pool ends.
  void WaitForWork();
  bool HasWork() const {
    const Ticket t = Unpack(ticket_.load(std::memory_order_acquire));
    return t.next < t.items;
  }

  // Written by the caller before ticket_, read after an item is taken.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  alignas(64) std::atomic<int> done_{0};  // items of the current loop that are done
  alignas(64) std::atomic<int> parked_{0};
  std::atomic<std::uint32_t> signal_{0};  // moves when parked workers are to look
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace thermocline::base
