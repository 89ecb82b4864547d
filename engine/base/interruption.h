// Work that takes long asks, now and then, whether anybody still waits for it; where several tasks
// share threads, it lets the others have their turn meanwhile.
#pragma once

#include <atomic>

namespace thermocline::base {

// Other work that may have its turn now. Called on the thread of the work that asks.
class Turn {
 public:
  virtual ~Turn() = default;
  // Returns when the work may go on, at once if no turn is due.
  virtual void GiveWay() = 0;
};

// While it lives, Interrupted() on this thread is true once `flag` is. Scopes nest: any flag
// counts, and every `turn` is offered; nullptr: there is none.
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

// Says whether nobody wants the result of what runs here any more: it may then be anything of its
// type. Other work may run before it returns, so the caller holds no lock that others need.
inline bool Interrupted() {
  bool interrupted = false;
  for (const InterruptScope* s = InterruptScope::innermost; s != nullptr; s = s->outer_) {
    if (s->turn_ != nullptr) s->turn_->GiveWay();
    interrupted = interrupted || s->flag_.load(std::memory_order_relaxed);
  }
  return interrupted;
}

}  // namespace thermocline::base
