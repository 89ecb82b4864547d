// The way of one request's tokens from the decode thread to whoever asked.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "engine/request.h"

namespace thermocline {

// Thread-safe: one producer (decode thread), one consumer. Text and ids wait here until taken; the
// two sides swap buffers, so that a consumer which keeps up costs no allocation.
class TokenChannel {
 public:
  // What came since the last Take.
  struct Update {
    std::string text;  // whole UTF-8 characters
    std::vector<int> tokens;
    std::vector<std::chrono::steady_clock::time_point> times;  // when each token was made
    bool finished = false;
    FinishReason reason = FinishReason::kNone;
    Status error;  // with reason kError
    Usage usage;   // final once finished
  };

  // `on_ready` is called on the decode thread after each push and the end; it must not block. May
  // be empty.
  explicit TokenChannel(std::function<void()> on_ready) : on_ready_(std::move(on_ready)) {
    ReserveBuffers(pending_);
  }

  // Sizes an Update for Take.
  static void ReserveBuffers(Update& update) {
    update.text.reserve(4096);
    update.tokens.reserve(1024);
    update.times.reserve(1024);
  }

  // Consumer: moves what is there into `update` (cleared first); whether there was anything.
  bool Take(Update& update) {
    const std::lock_guard lock(mutex_);
    return TakeLocked(update);
  }
  // As Take, but waits until there is something.
  void WaitAndTake(Update& update) {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return fresh_; });
    TakeLocked(update);
  }
  // Consumer: the work is not wanted any more. The engine reads this once per step.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // Producer.
  void Push(int token, const std::string& text) {
    {
      const std::lock_guard lock(mutex_);
      pending_.tokens.push_back(token);
      pending_.times.push_back(std::chrono::steady_clock::now());
      pending_.text += text;
      fresh_ = true;
    }
    Notify();
  }
  void Finish(FinishReason reason, const std::string& text, const Usage& usage, Status error = {}) {
    {
      const std::lock_guard lock(mutex_);
      pending_.text += text;
      pending_.finished = true;
      pending_.reason = reason;
      pending_.usage = usage;
      pending_.error = std::move(error);
      fresh_ = true;
    }
    Notify();
  }

 private:
  bool TakeLocked(Update& update) {
    update.text.clear();
    update.tokens.clear();
    update.times.clear();
    update.finished = false;
    if (!fresh_) return false;
    std::swap(update, pending_);
    fresh_ = false;
    return true;
  }
  void Notify() {
    ready_.notify_one();
    if (on_ready_) on_ready_();
  }

  const std::function<void()> on_ready_;
  std::mutex mutex_;
  std::condition_variable ready_;
  Update pending_;      // guarded by mutex_
  bool fresh_ = false;  // guarded by mutex_: pending_ holds something not taken
  std::atomic<bool> cancelled_{false};
};

}  // namespace thermocline
