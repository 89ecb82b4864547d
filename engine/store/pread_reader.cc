// Reads with a pool of threads, for systems that do not allow io_uring, such as most containers.
// Each read costs a system call and two hand-overs between threads.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/store/file_reader.h"

namespace thermocline::store {
namespace {

constexpr int kThreadsMax = 16;

class PreadReader final : public FileReader {
 public:
  PreadReader(base::DirectFile file, int depth)
      : FileReader(std::move(file), depth), queue_(depth) {
    ended_.reserve(queue_.size());
    for (int i = 0; i < std::min(depth, kThreadsMax); ++i) {
      threads_.emplace_back([this] { ThreadMain(); });
      pthread_setname_np(threads_.back().native_handle(), StrCat("flash-io-", i).c_str());
    }
  }

  // Drops the reads that no thread has taken yet.
  ~PreadReader() override {
    {
      const base::MutexLock lock(mutex_);
      stop_ = true;
    }
    work_.NotifyAll();
    for (std::thread& thread : threads_) thread.join();
  }

  const char* method() const override { return "pread"; }

  void Submit(std::span<const Read> reads) override {
    Admit(reads);
    {
      const base::MutexLock lock(mutex_);
      for (const Read& read : reads) queue_[(first_ + queued_++) % queue_.size()] = read;
    }
    if (reads.size() == 1) {
      work_.NotifyOne();
    } else if (!reads.empty()) {
      work_.NotifyAll();
    }
  }

  int Wait(std::span<Completion> out, std::chrono::milliseconds timeout) override {
    if (out.empty() || in_flight_ == 0) return 0;
    const base::MutexLock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + std::min(timeout, kTimeoutMax);
    while (ended_.empty() && timeout.count() > 0) {
      if (!done_.WaitUntil(mutex_, until)) break;
    }
    const std::size_t count = std::min(out.size(), ended_.size());
    const auto last = ended_.begin() + count;
    std::copy(ended_.begin(), last, out.begin());
    ended_.erase(ended_.begin(), last);
    in_flight_ -= static_cast<int>(count);
    return static_cast<int>(count);
  }

 private:
  static constexpr std::chrono::milliseconds kTimeoutMax = std::chrono::hours(24);

  void ThreadMain() {
    base::MutexLock lock(mutex_);
    for (;;) {
      while (!stop_ && queued_ == 0) work_.Wait(mutex_);
      if (stop_) return;
      const Read read = queue_[first_];
      first_ = (first_ + 1) % queue_.size();
      --queued_;
      lock.Unlock();
      const Completion completion = {.tag = read.tag, .result = Perform(read)};
      lock.Lock();
      ended_.push_back(completion);
      done_.NotifyOne();
    }
  }

  std::int64_t Perform(const Read& read) const {
    for (;;) {
      const ssize_t n = ::pread(file_.fd(), read.out, read.bytes, read.offset);
      if (n >= 0) return n;
      if (errno != EINTR) return -errno;
    }
  }

  base::Mutex mutex_;
  base::Condition work_, done_;
  // Neither vector grows: both hold at most depth() elements.
  std::vector<Read> queue_ GUARDED_BY(mutex_);  // a ring: queued_ reads from first_ on
  std::size_t first_ GUARDED_BY(mutex_) = 0;
  std::size_t queued_ GUARDED_BY(mutex_) = 0;
  std::vector<Completion> ended_ GUARDED_BY(mutex_);
  bool stop_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BlockReader> MakePreadReader(base::DirectFile file, int depth) {
  return std::make_unique<PreadReader>(std::move(file), depth);
}

}  // namespace thermocline::store
