#include "engine/base/worker_pool.h"

#include <pthread.h>

#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace thermocline::base {
namespace {

// About 20 us on a 3.7 GHz Zen 4 (a pause takes some 40 cycles there): longer than the gap between
// two loops of one token, far shorter than a scheduler's time slice.
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

WorkerPool::WorkerPool(int threads) {
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this, i] { WorkerMain(i); });
    const std::string name = "cold-" + std::to_string(i);
    pthread_setname_np(workers_.back().native_handle(), name.c_str());
  }
}

WorkerPool::~WorkerPool() {
  stop_ = true;
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void WorkerPool::RunLoop(int items, Call call, const void* context) {
  if (workers_.empty() || items <= 1) {
    for (int i = 0; i < items; ++i) call(context, i, 0);
    return;
  }
  call_ = call;
  context_ = context;
  items_ = items;
  next_item_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  TakeItems(0);
  for (int spins = 0; busy_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      Pause();
    } else {
      const int seen = busy_.load(std::memory_order_acquire);
      if (seen != 0) busy_.wait(seen, std::memory_order_acquire);
    }
  }
}

void WorkerPool::TakeItems(int thread) {
  for (int item = next_item_.fetch_add(1, std::memory_order_relaxed); item < items_;
       item = next_item_.fetch_add(1, std::memory_order_relaxed)) {
    call_(context_, item, thread);
  }
}

void WorkerPool::WorkerMain(int thread) {
  std::uint32_t seen = 0;
  while (true) {
    for (int spins = 0; epoch_.load(std::memory_order_acquire) == seen && spins < kSpins; ++spins)
      Pause();
    epoch_.wait(seen, std::memory_order_acquire);
    ++seen;
    if (stop_.load()) return;
    TakeItems(thread);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

}  // namespace thermocline::base
