// Interruption of long work: it checks now and then whether its result is still wanted and, if
// several tasks share threads, lets the other tasks run.
#pragma once

#include <atomic>

namespace thermocline::base {

// Lets other tasks run. Interrupted() calls it, on the thread that checks for interruption.
class Turn {
 public:
  virtual ~Turn() = default;
  // Returns when the work may continue, at once if no other work is due.
  virtual void GiveWay() = 0;
};

// While it lives, Interrupted() on this thread is true once `flag` is. Scopes nest: any flag
// counts, and every `turn` is called; `turn` may be null.
class InterruptScope {
 public:
  explicit InterruptScope(const std::atomic<bool>& flag, Turn* turn = nullptr)
      : flag_(flag), turn_(turn), outer_(innermost) {
    innermost = this;
  }
  ~InterruptScope() { innermost = outer_; }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  friend bool Interrupted();
  static inline thread_local const InterruptScope* innermost = nullptr;

  const std::atomic<bool>& flag_;
  Turn* const turn_;
  const InterruptScope* outer_;
};

// Returns true if the result of the current work is not wanted any more; the work may then return
// any value of its type. Other work may run before this returns, so the caller must not hold a lock
// that others need.
inline bool Interrupted() {
  bool interrupted = false;
  for (const InterruptScope* s = InterruptScope::innermost; s != nullptr; s = s->outer_) {
    if (s->turn_ != nullptr) s->turn_->GiveWay();
    interrupted = interrupted || s->flag_.load(std::memory_order_relaxed);
  }
  return interrupted;
}

}  // namespace thermocline::base
