// A number that one thread raises and another waits for: for two threads that hand work to each
// other some hundred times per token.
//
// The waiter pauses, then yields its processor, then sleeps, as WorkerPool does and for the same
// reasons.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace thermocline::base {

class StepSignal {
 public:
  // Makes all earlier writes of this thread visible to the thread that waits for `step`. Requires:
  // rising steps.
  void Raise(std::uint32_t step) {
    step_.store(step);
    if (sleeping_.load()) step_.notify_all();
  }
  // Returns when the step is at least `step`.
  void Wait(std::uint32_t step) {
    for (int pauses = 0; pauses < kPauses; ++pauses) {
      if (Reached(step)) return;
      Pause();
    }
    const auto end = std::chrono::steady_clock::now() + kOfferTime;
    while (std::chrono::steady_clock::now() < end) {
      if (Reached(step)) return;
      ::sched_yield();
    }
    sleeping_.store(true);  // seq_cst, before reading step_: pairs with Raise
    for (std::uint32_t seen = step_.load(); !Reached(seen, step); seen = step_.load())
      step_.wait(seen);
    sleeping_.store(false);
  }
  bool Reached(std::uint32_t step) const {
    return Reached(step_.load(std::memory_order_acquire), step);
  }

 private:
  static constexpr int kPauses = 4000;  // about 50 us
  static constexpr std::chrono::microseconds kOfferTime{500};

  // Steps may wrap around.
  static bool Reached(std::uint32_t now, std::uint32_t step) {
    return static_cast<std::int32_t>(now - step) >= 0;
  }
  static void Pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  alignas(64) std::atomic<std::uint32_t> step_{0};
  alignas(64) std::atomic<bool> sleeping_{false};
};

}  // namespace thermocline::base
