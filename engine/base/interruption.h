// Work that takes long asks, now and then, whether anybody still waits for it.
#pragma once

#include <atomic>

namespace thermocline::base {

// While it lives, Interrupted() on this thread is true once `flag` is. Scopes nest: any flag
// counts.
class InterruptScope {
 public:
  explicit InterruptScope(const std::atomic<bool>& flag) : flag_(flag), outer_(innermost) {
    innermost = this;
  }
  ~InterruptScope() { innermost = outer_; }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  friend bool Interrupted();
  static inline thread_local const InterruptScope* innermost = nullptr;

  const std::atomic<bool>& flag_;
  const InterruptScope* outer_;
};

// Says whether nobody wants the result of what runs here any more: it may then be anything of its
// type.
inline bool Interrupted() {
  for (const InterruptScope* s = InterruptScope::innermost; s != nullptr; s = s->outer_)
    if (s->flag_.load(std::memory_order_relaxed)) return true;
  return false;
}

}  // namespace thermocline::base
