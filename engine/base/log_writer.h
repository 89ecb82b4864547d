// Writes the log's lines on a thread of its own, so that nobody waits for who reads them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

namespace thermocline::base {

// Thread-safe. Lines come in order. Where they are not read, kBytesMax of them wait; what comes
// then is dropped and counted, and the next line that fits says how many were.
class LogWriter {
 public:
  static constexpr std::size_t kBytesMax = 1 << 20;

  // Writes to `file`, a descriptor. Until Start, and where no thread can be had, in Push.
  explicit LogWriter(int file) : file_(file) {}

  // Begins the thread, which lives as long as the process: it may wait for a reader for ever. So
  // must the object.
  void Start();
  // `line` with its end.
  void Push(std::string line);
  // Waits until all lines are written, but no longer than `most`.
  void Flush(std::chrono::milliseconds most);
  std::int64_t dropped() const { return dropped_; }

 private:
  void Run();

  const int file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  std::size_t bytes_ = 0;  // of lines_
  bool started_ = false, writing_ = false;
  std::int64_t untold_ = 0;  // dropped lines that no line tells of yet
  std::atomic<std::int64_t> dropped_{0};
};

}  // namespace thermocline::base
