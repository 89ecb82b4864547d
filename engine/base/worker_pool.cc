#include "engine/base/worker_pool.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <new>
#include <string>

#include "engine/base/status.h"
#include "engine/base/thread_priority.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace thermocline::base {
namespace {

// Some 20 us (a pause takes 40 to 140 cycles): longer than most gaps between two loops of a token.
constexpr int kPauses = 2000;
// The time for which a worker yields its processor between polls before it parks: longer than any
// gap inside a token, and than sampling, so that decoding never waits for a wake-up.
constexpr std::chrono::microseconds kOfferTime{2000};

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

WorkerPool::WorkerPool(int threads) : active_(threads), runs_(threads) {
  try {
    workers_.reserve(threads);
    for (int i = 1; i < threads; ++i) {
      workers_.emplace_back([this, i] { WorkerMain(i); });
      const std::string name = "cold-" + std::to_string(i);
      pthread_setname_np(workers_.back().native_handle(), name.c_str());
    }
  } catch (...) {  // std::bad_alloc or no thread
    Stop();
    throw;
  }
}

WorkerPool::~WorkerPool() { Stop(); }

void WorkerPool::Stop() {
  stop_ = true;
  SetActive(threads());
  signal_.fetch_add(1);
  signal_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

WorkerPool::Ticket WorkerPool::Unpack(std::uint64_t word) {
  return {static_cast<int>(word >> 20 & 0xFFFFF), static_cast<int>(word & 0xFFFFF)};
}

void WorkerPool::RunLoop(int items, Call call, const void* context) {
  if (active() == 1 || items <= 1) {
    for (int i = 0; i < items; ++i) call(context, i, 0);
    return;
  }
  for (first_ = 0; items > kItemsMax; first_ += kItemsMax, items -= kItemsMax)
    RunBatch(kItemsMax, call, context);
  RunBatch(items, call, context);
}

void WorkerPool::RunBatch(int items, Call call, const void* context) {
  StartBatch(items, call, context);
  TakeItems(0);
  WaitFor(items);
  if (no_memory_.load(std::memory_order_relaxed)) {
    no_memory_ = false;
    throw std::bad_alloc();
  }
}

void WorkerPool::StartBatch(int items, Call call, const void* context) {
  call_ = call;
  context_ = context;
  done_.store(0, std::memory_order_relaxed);
  ++epoch_;
  const std::uint64_t count = active();
  for (std::uint64_t t = 0; t < count; ++t) {
    const std::uint64_t begin = items * t / count, end = items * (t + 1) / count;
    runs_[t].ticket.store(epoch_ << 40 | end << 20 | begin);  // seq_cst, before parked_
  }
  if (parked_.load() > 0) {
    signal_.fetch_add(1);
    signal_.notify_all();
  }
}

void WorkerPool::WaitFor(int items) {
  for (int pauses = 0; pauses < kPauses; ++pauses) {
    if (done_.load(std::memory_order_acquire) == items) return;
    Pause();
  }
  // A worker was preempted while holding an item. Sleeping frees this processor for it.
  for (int seen = done_.load(std::memory_order_acquire); seen != items;
       seen = done_.load(std::memory_order_acquire))
    done_.wait(seen, std::memory_order_acquire);
}

int WorkerPool::TakeRun(int run, int thread) {
  std::atomic<std::uint64_t>& ticket = runs_[run].ticket;
  int taken = 0;
  while (HasWork(runs_[run])) {
    const Ticket t = Unpack(ticket.fetch_add(1, std::memory_order_acq_rel));
    if (t.next >= t.end) break;
    try {
      call_(context_, first_ + t.next, thread);
    } catch (const std::bad_alloc&) {
      no_memory_ = true;  // rethrown by the caller
    }
    ++taken;
  }
  return taken;
}

void WorkerPool::TakeItems(int thread) {
  int taken = 0;
  for (int i = 0; i < threads(); ++i) taken += TakeRun((thread + i) % threads(), thread);
  if (taken == 0) return;
  done_.fetch_add(taken, std::memory_order_acq_rel);
  done_.notify_one();
}

void WorkerPool::WaitForWork(const ItemRun& run) {
  for (int pauses = 0; pauses < kPauses; ++pauses) {
    if (HasWork(run)) return;
    Pause();
  }
  const auto end = std::chrono::steady_clock::now() + kOfferTime;
  while (std::chrono::steady_clock::now() < end) {
    for (int pauses = 0; pauses < kPauses / 40; ++pauses) {
      if (HasWork(run)) return;
      Pause();
    }
    ::sched_yield();
  }
  const std::uint32_t seen = signal_.load();
  parked_.fetch_add(1);
  const Ticket t = Unpack(run.ticket.load());  // seq_cst, after parked_: pairs with RunBatch
  if (t.next >= t.end && !stop_.load()) signal_.wait(seen);
  parked_.fetch_sub(1);
}

void WorkerPool::WorkerMain(int thread) {
  AskForShortTurns();  // a preempted worker with an item delays all others
  const ItemRun& run = runs_[thread];
  while (!stop_.load()) {
    for (int active = active_.load(); thread >= active; active = active_.load())
      active_.wait(active);
    WaitForWork(run);
    if (HasWork(run)) TakeItems(thread);
  }
}

}  // namespace thermocline::base
