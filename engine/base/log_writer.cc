#include "engine/base/log_writer.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/strings.h"

namespace thermocline::base {
namespace {

// Writes as much as the file accepts. Returns false if the rest is lost.
bool WriteAll(int file, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(file, text.data() + at, text.size() - at);
    if (written >= 0) {
      at += written;
    } else if (errno == EAGAIN) {  // the descriptor was made non-blocking
      pollfd ready{.fd = file, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

void LogWriter::Start() {
  const std::lock_guard lock(mutex_);
  if (started_) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are handled by other threads
  try {
    std::thread thread([this] { Run(); });
    pthread_setname_np(thread.native_handle(), "log");
    thread.detach();
    started_ = true;
  } catch (const std::system_error&) {
    started_ = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void LogWriter::Push(std::string line) {
  std::unique_lock lock(mutex_);
  if (!started_) {
    if (!WriteAll(file_, line)) Drop();
    return;
  }
  if (bytes_ + line.size() > kBytesMax) {
    Drop();
    return;
  }
  if (untold_ > 0)
    line.insert(
        0,
        StrCat(
            "(", std::exchange(untold_, 0),
            " lines of the log were dropped: nobody read them, or they could not be written)\n"));
  bytes_ += line.size();
  lines_.push_back(std::move(line));
  changed_.notify_all();
}

void LogWriter::Drop() {
  ++untold_;
  ++dropped_;
}

void LogWriter::Flush(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [this] { return !started_ || (lines_.empty() && !writing_); });
}

void LogWriter::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !lines_.empty(); });
    const std::string line = std::move(lines_.front());
    lines_.pop_front();
    bytes_ -= line.size();
    writing_ = true;
    lock.unlock();
    const bool written = WriteAll(file_, line);
    lock.lock();
    if (!written) Drop();
    writing_ = false;
    if (lines_.empty()) changed_.notify_all();
  }
}

}  // namespace thermocline::base
