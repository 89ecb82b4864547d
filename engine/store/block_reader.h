// Reads of blocks of a file that go around the page cache, many at a time.
//
// A seam: io_uring, a pool of threads with pread, and in tests a device that fails.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/base/status.h"

namespace thermocline::store {

// A read that has ended. Trivial to copy: what went wrong is an errno, made a Status by who gives
// up on it.
struct Completion {
  std::uint64_t tag = 0;
  std::int64_t result = 0;  // bytes read, may be fewer than asked for; or -errno
};

// Used by one thread at a time, not always the same. The destructor waits for what the device has
// begun, so that no read lands in memory that is somebody else's by then.
class BlockReader {
 public:
  virtual ~BlockReader() = default;

  virtual const std::string& path() const = 0;
  virtual std::uint64_t size() const = 0;     // bytes, when it was opened
  virtual std::size_t alignment() const = 0;  // of offsets, sizes and addresses
  virtual int depth() const = 0;              // reads that may be in flight
  virtual const char* method() const = 0;     // "io_uring", "pread"
  virtual bool direct() const = 0;            // around the page cache

  // Memory that reads go to, at the reader's alignment; the address of a read must be inside it.
  // Registered with the kernel where that is possible. Requires: nothing is in flight.
  // ResourceExhausted if the system refuses.
  virtual Status SetMemory(std::span<std::byte> memory) = 0;

  struct Read {
    std::uint64_t offset = 0;  // of the file
    std::byte* out = nullptr;
    std::uint32_t bytes = 0;
    std::uint64_t tag = 0;  // comes back in the Completion
  };
  // Starts reads, with one call to the kernel. Requires: depth() is not exceeded. An error to start
  // one is that read's Completion.
  virtual void Submit(std::span<const Read> reads) = 0;
  // Reads that have ended, at least one unless the time is up or nothing is in flight; 0 ms does
  // not wait. Returns how many were written to `out`. Each read ends exactly once.
  virtual int Wait(std::span<Completion> out, std::chrono::milliseconds timeout) = 0;
  // Sets the number of reads that Wait had better wait for at once, where they are in flight: fewer
  // calls to the kernel. A hint; what has ended already comes without waiting.
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

// The fastest way that the system allows; says in the log which, and why not a faster one. Errors
// as base::OpenFile. THERMOCLINE_FLASH_IO=pread in the environment forbids io_uring; =io_uring
// insists on it (FailedPrecondition without); another value is InvalidArgument.
Result<std::unique_ptr<BlockReader>> OpenBlockReader(const std::string& path,
                                                     const ReaderOptions& options);

// The status of a completion of `read`: OK when every byte of it inside the file was read.
// DataLoss: the file ends before its size() when it was opened, somebody truncated it. Else the
// errno's Status.
Status ReadStatus(const BlockReader& reader, const BlockReader::Read& read,
                  const Completion& completion);

}  // namespace thermocline::store
