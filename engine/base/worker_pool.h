// Persistent kernel threads that share out the items of one loop at a time.
//
// Workers spin briefly for the next loop, then park: a token starts some hundred loops, so waking
// by the kernel each time would cost more than the work; but a spinning idle pool starves its
// neighbours.
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

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls `body(item, thread)` once for each item in [0, items), in any order, on any thread.
  // Items are taken from a shared counter, so a slow thread takes fewer.
  template <typename Body>
  void Run(int items, const Body& body) {
    const auto call = [](const void* context, int item, int thread) {
      (*static_cast<const Body*>(context))(item, thread);
    };
    RunLoop(items, call, &body);
  }

 private:
  using Call = void (*)(const void*, int, int);
  void RunLoop(int items, Call call, const void* context);
  void TakeItems(int thread);
  void WorkerMain(int thread);

  // The loop in progress. Written by the caller before epoch_ moves, read by workers after.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  int items_ = 0;
  alignas(64) std::atomic<int> next_item_{0};
  alignas(64) std::atomic<std::uint32_t> epoch_{0};
  alignas(64) std::atomic<int> busy_{0};  // workers that have not finished this epoch
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace thermocline::base
