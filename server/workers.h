// Threads for work that takes long: templates and tokenizing. Those that carry streams, probes and
// signals stay free for them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/thread_pool.hpp>

namespace thermocline::server {

// Thread-safe.
class Workers {
 public:
  explicit Workers(int threads);
  ~Workers() { Stop(); }

  // Runs `work` here, then `then` on `back`. What waits is bounded by whoever calls: a connection
  // has one request at a time. After Stop both are dropped. `work` must not throw.
  void Post(boost::asio::any_io_executor back, std::function<void()> work,
            std::function<void()> then);
  // Drops what waits; returns when what runs has ended and every `then` that follows has run, for
  // which its executor must still be running.
  void Stop();

 private:
  std::mutex mutex_;
  std::unique_ptr<boost::asio::thread_pool> pool_;  // guarded by mutex_; nullptr after Stop
  // Copied into whatever is between Post and the end of its `then`.
  std::shared_ptr<const bool> ticket_ = std::make_shared<const bool>(true);
};

}  // namespace thermocline::server
