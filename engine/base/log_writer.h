// Writes the log's lines on its own thread, so that no thread waits for the log's reader.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

namespace thermocline::base {

// Thread-safe. Lines come in order. If they are not read, up to kBytesMax of them wait. Further
// lines, and those that a full disk refuses, are dropped and counted, and the next line that fits
// reports the count.
class LogWriter {
 public:
  static constexpr std::size_t kBytesMax = 1 << 20;

  // Writes to `file`, a descriptor. Push writes directly until Start, and if no thread can be
  // created.
  explicit LogWriter(int file) : file_(file) {}

  // Starts the thread, which lives as long as the process because it may wait for a reader forever;
  // so the object must live as long.
  void Start();
  // `line` includes its end of line.
  void Push(std::string line);
  // Waits until all lines are written, but no longer than `most`.
  void Flush(std::chrono::milliseconds most);
  std::int64_t dropped() const { return dropped_; }

 private:
  void Run();
  // Counts a line that is lost. Requires mutex_.
  void Drop();

  const int file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  std::size_t bytes_ = 0;  // of lines_
  bool started_ = false, writing_ = false;
  std::int64_t untold_ = 0;  // dropped lines not yet reported by a line
  std::atomic<std::int64_t> dropped_{0};
};

}  // namespace thermocline::base
