// Mutexes whose rules a compiler checks: `clang++ -Wthread-safety` refuses code that touches a
// member marked GUARDED_BY(mutex) without holding the mutex. With other compilers the marks are
// empty.
//
// Source: clang's "Thread Safety Analysis"; the standard library's own mutex carries no marks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define THERMOCLINE_THREAD_MARK(mark) __attribute__((mark))
#else
#define THERMOCLINE_THREAD_MARK(mark)
#endif

// On members: the mutex that must be held. Abseil, which gRPC uses, defines two of these names in
// the same way.
#ifndef GUARDED_BY
#define GUARDED_BY(mutex) THERMOCLINE_THREAD_MARK(guarded_by(mutex))
#endif
// On functions: the caller must hold the mutex; the function locks it; unlocks it; the caller must
// not hold it.
#define REQUIRES(...) THERMOCLINE_THREAD_MARK(requires_capability(__VA_ARGS__))
#define ACQUIRE(...) THERMOCLINE_THREAD_MARK(acquire_capability(__VA_ARGS__))
#define RELEASE(...) THERMOCLINE_THREAD_MARK(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) THERMOCLINE_THREAD_MARK(try_acquire_capability(__VA_ARGS__))
#define EXCLUDES(...) THERMOCLINE_THREAD_MARK(locks_excluded(__VA_ARGS__))
// On functions whose locking the analysis cannot follow; a comment says why.
#ifndef NO_THREAD_SAFETY_ANALYSIS
#define NO_THREAD_SAFETY_ANALYSIS THERMOCLINE_THREAD_MARK(no_thread_safety_analysis)
#endif

namespace thermocline::base {

// The names are those of the standard's BasicLockable, so that it works with
// std::condition_variable_any.
class THERMOCLINE_THREAD_MARK(capability("mutex")) Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

// Holds a mutex for a scope, except between calls of Unlock and Lock.
class THERMOCLINE_THREAD_MARK(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  // Takes over a mutex that the caller has locked, for example with try_lock.
  MutexLock(Mutex& mutex, std::adopt_lock_t) REQUIRES(mutex) : mutex_(mutex) {}
  ~MutexLock() RELEASE() {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() RELEASE() {
    held_ = false;
    mutex_.unlock();
  }
  void Lock() ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// Waits may end without a notification, so callers test in a loop: `while (!ready_)
// condition_.Wait(m);`.
class Condition {
 public:
  void Wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Returns false if `until` has passed.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point until) REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = condition_.wait_until(lock, until) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace thermocline::base
