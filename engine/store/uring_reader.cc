// Reads with io_uring: one system call starts many reads, completions are taken from shared memory,
// and no thread waits on the device. Linux 5.15 and later.
//
// The file is registered, and the memory too if the system allows pinning it: otherwise the kernel
// looks up and pins the pages of every read again. IORING_SETUP_SINGLE_ISSUER is not used: it would
// tie the ring to the thread that made it, and the model is loaded by a different thread than the
// one that decodes.
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "engine/base/log.h"
#include "engine/store/file_reader.h"

namespace thermocline::store {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBufferMax = std::size_t{1} << 30;  // of one registered buffer

Status NoUring(const char* what, int error) {
  return base::Unavailable(what, ": ", std::strerror(-error));
}

// 0 or -errno.
int InitRing(unsigned entries, io_uring& ring) {
  // Completions wait until the ring is polled, instead of interrupting the thread that computes
  // (5.19); one bad read does not hold up later ones (5.18).
  constexpr unsigned kWanted =
      IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL;
  int error = 0;
  for (const unsigned flags : {kWanted, 0u}) {
    io_uring_params params{};
    params.flags = flags;
    error = io_uring_queue_init_params(entries, &ring, &params);
    if (error != -EINVAL) break;
  }
  return error;
}

// Checks that the ring works: a system call filter may allow creating a ring but not using it.
int TryRing(io_uring& ring) {
  io_uring_prep_nop(io_uring_get_sqe(&ring));
  if (const int n = io_uring_submit_and_wait(&ring, 1); n < 0) return n;
  io_uring_cqe* cqe = nullptr;
  if (const int error = io_uring_peek_cqe(&ring, &cqe); error < 0) return error;
  const int result = cqe->res;
  io_uring_cqe_seen(&ring, cqe);
  return result;
}

class UringReader final : public FileReader {
 public:
  // Owns `ring` from here on.
  UringReader(base::DirectFile file, int depth, const io_uring& ring)
      : FileReader(std::move(file), depth), ring_(ring) {
    const int fd = file_.fd();
    file_registered_ = io_uring_register_files(&ring_, &fd, 1) == 0;
  }

  ~UringReader() override {
    Completion out[64];
    while (in_flight_ > 0) Wait(out, std::chrono::hours(1));
    // Otherwise the kernel releases them only some time later, and a disk cannot be unmounted right
    // away.
    if (memory_registered_) io_uring_unregister_buffers(&ring_);
    if (file_registered_) io_uring_unregister_files(&ring_);
    io_uring_queue_exit(&ring_);
  }

  const char* method() const override { return "io_uring"; }

  Status SetMemory(std::span<std::byte> memory) override {
    RETURN_IF_ERROR(FileReader::SetMemory(memory));
    if (memory_registered_) io_uring_unregister_buffers(&ring_);
    memory_registered_ = false;
    if (memory.empty()) return OkStatus();
    std::vector<iovec> parts;
    for (std::size_t at = 0; at < memory.size(); at += kBufferMax)
      parts.push_back({memory.data() + at, std::min(kBufferMax, memory.size() - at)});
    const int error =
        io_uring_register_buffers(&ring_, parts.data(), static_cast<unsigned>(parts.size()));
    memory_registered_ = error == 0;
    if (error != 0 && !refusal_logged_) {
      refusal_logged_ = true;
      base::LogInfo(path(), ": ", memory.size(),
                    " bytes of memory cannot be registered: ", std::strerror(-error),
                    error == -ENOMEM ? " (raise RLIMIT_MEMLOCK); reads cost a little more" : "");
    }
    return OkStatus();
  }

  void Submit(std::span<const Read> reads) override {
    Admit(reads);
    for (const Read& read : reads) Prepare(read);
    Flush();
  }

  void SetBatch(int reads) override { batch_ = reads; }

  int Wait(std::span<Completion> out, std::chrono::milliseconds timeout) override {
    if (out.empty() || in_flight_ == 0) return 0;
    Flush();
    int count = Reap(out);
    if (count > 0 || timeout.count() <= 0) return count;
    const auto deadline =
        Clock::now() + std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24));
    while (count == 0) {
      const auto left = deadline - Clock::now();
      if (left.count() <= 0) break;
      WaitFor(std::chrono::duration_cast<std::chrono::nanoseconds>(left));
      count = Reap(out);
    }
    return count;
  }

 private:
  void Prepare(const Read& read) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    CHECK(sqe != nullptr);  // the ring has depth_ entries
    const int fd = file_registered_ ? 0 : file_.fd();
    const std::size_t at = read.out - memory_.data();
    const std::size_t buffer = at / kBufferMax;
    // A read across the border of two registered buffers can use neither.
    const bool in_one = read.bytes > 0 && (at + read.bytes - 1) / kBufferMax == buffer;
    if (memory_registered_ && in_one) {
      io_uring_prep_read_fixed(sqe, fd, read.out, read.bytes, read.offset,
                               static_cast<int>(buffer));
    } else {
      io_uring_prep_read(sqe, fd, read.out, read.bytes, read.offset);
    }
    io_uring_sqe_set_flags(sqe, file_registered_ ? IOSQE_FIXED_FILE : 0u);
    io_uring_sqe_set_data64(sqe, read.tag);
  }

  // Submits the prepared reads. Reads for which the kernel has no memory now stay for the next
  // Wait.
  void Flush() {
    while (io_uring_sq_ready(&ring_) > 0) {
      const int n = io_uring_submit(&ring_);
      if (n > 0 || n == -EINTR) continue;
      CheckTransient(n);
      return;
    }
  }

  // Returns when a read has ended, the time is up, or a signal came.
  void WaitFor(std::chrono::nanoseconds time) {
    constexpr std::int64_t kSecond = 1000000000;
    __kernel_timespec limit{};
    limit.tv_sec = time.count() / kSecond;
    limit.tv_nsec = time.count() % kSecond;
    io_uring_cqe* first = nullptr;
    const int wanted = std::clamp(batch_, 1, in_flight_);
    CheckTransient(io_uring_submit_and_wait_timeout(&ring_, &first, wanted, &limit, nullptr));
  }

  int Reap(std::span<Completion> out) {
    std::size_t count = 0;
    while (count < out.size()) {
      io_uring_cqe* ended[64];
      const std::size_t wanted = std::min(out.size() - count, std::size(ended));
      const unsigned n = io_uring_peek_batch_cqe(&ring_, ended, static_cast<unsigned>(wanted));
      for (unsigned i = 0; i < n; ++i)
        out[count++] = {.tag = ended[i]->user_data, .result = ended[i]->res};
      io_uring_cq_advance(&ring_, n);
      if (n < wanted) break;
    }
    in_flight_ -= static_cast<int>(count);
    return static_cast<int>(count);
  }

  // Other errors are bugs: a ring that worked once is not refused later.
  static void CheckTransient(int result) {
    const bool transient = result >= 0 || result == -EINTR || result == -ETIME ||
                           result == -EAGAIN || result == -EBUSY || result == -ENOMEM;
    if (!transient) CHECK_EQ(result, 0);
  }

  int batch_ = 1;
  io_uring ring_;
  bool file_registered_ = false, memory_registered_ = false, refusal_logged_ = false;
};

}  // namespace

Result<std::unique_ptr<BlockReader>> MakeUringReader(base::DirectFile& file, int depth) {
  io_uring ring{};
  if (const int error = InitRing(depth, ring); error != 0) return NoUring("io_uring_setup", error);
  if (const int error = TryRing(ring); error < 0) {
    io_uring_queue_exit(&ring);
    return NoUring("io_uring_enter", error);
  }
  if ((ring.features & IORING_FEAT_EXT_ARG) == 0) {  // support for waiting with a time limit
    io_uring_queue_exit(&ring);
    return base::Unavailable("the kernel is older than 5.11");
  }
  return std::unique_ptr<BlockReader>(new UringReader(std::move(file), depth, ring));
}

}  // namespace thermocline::store
