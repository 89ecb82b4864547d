// Asynchronous reads of a file's blocks that bypass the page cache, many at a time.
//
// A seam with several implementations: io_uring, a thread pool with pread, and in tests a failing
// device.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/base/status.h"

namespace thermocline::store {

// A read that has ended. Trivially copyable: an error is an errno, which the code that gives up on
// the read turns into a Status.
struct Completion {
  std::uint64_t tag = 0;
  std::int64_t result = 0;  // bytes read, possibly fewer than requested; or -errno
};

// Used by one thread at a time, not always the same. The destructor waits for reads in flight, so
// that none writes to memory that has been reused.
class BlockReader {
 public:
  virtual ~BlockReader() = default;

  virtual const std::string& path() const = 0;
  virtual std::uint64_t size() const = 0;     // bytes, when it was opened
  virtual std::size_t alignment() const = 0;  // of offsets, sizes and addresses
  virtual int depth() const = 0;              // reads that may be in flight
  virtual const char* method() const = 0;     // "io_uring", "pread"
  virtual bool direct() const = 0;            // bypasses the page cache

  // Sets the memory that reads write to, at the reader's alignment; the address of a read must be
  // inside it. It is registered with the kernel if possible. Requires: no read is in flight.
  // ResourceExhausted if the system refuses.
  virtual Status SetMemory(std::span<std::byte> memory) = 0;

  struct Read {
    std::uint64_t offset = 0;  // of the file
    std::byte* out = nullptr;
    std::uint32_t bytes = 0;
    std::uint64_t tag = 0;  // returned in the Completion
  };
  // Starts reads, with one call to the kernel. Requires: depth() is not exceeded. If a read cannot
  // be started, its Completion holds the error.
  virtual void Submit(std::span<const Read> reads) = 0;
  // Collects reads that have ended: at least one, unless the time is up or none is in flight; 0 ms
  // does not wait. Returns the number written to `out`. Each read ends exactly once.
  virtual int Wait(std::span<Completion> out, std::chrono::milliseconds timeout) = 0;
  // Sets the number of reads that Wait should wait for at once, if that many are in flight, to save
  // calls to the kernel. A hint: completed reads are returned without waiting.
  virtual void SetBatch(int /*reads*/) {}
  int in_flight() const { return in_flight_; }

 protected:
  int in_flight_ = 0;
};

struct ReaderOptions {
  int depth = 64;
  bool allow_io_uring = true;
  bool allow_direct = true;
};

// Opens the fastest reader that the system allows; logs which one, and the reason why not a faster
// one. Errors as base::OpenFile. THERMOCLINE_FLASH_IO=pread in the environment forbids io_uring;
// =io_uring requires it (FailedPrecondition if it is unavailable); another value is
// InvalidArgument.
Result<std::unique_ptr<BlockReader>> OpenBlockReader(const std::string& path,
                                                     const ReaderOptions& options);

// The status of a completion of `read`: OK when every byte of it inside the file was read.
// DataLoss: the file was truncated since it was opened. Otherwise the errno's Status.
Status ReadStatus(const BlockReader& reader, const BlockReader::Read& read,
                  const Completion& completion);

}  // namespace thermocline::store
