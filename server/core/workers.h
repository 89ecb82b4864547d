// Threads for work that may take long: templates, tokenizing, grammars. Those that carry streams,
// probes and signals stay free for them, whatever a template does. Clients take turns.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "engine/base/mutex.h"

namespace thermocline::server {

// Requests up to this have workers of their own: their templates and tokens mostly take less than
// 10 ms (1.5 us a byte, measured), and need not wait behind longer ones.
inline constexpr std::size_t kShortBytesMax = 4 << 10;

// Thread-safe.
class Workers {
 public:
  // Throws std::system_error where there are no threads to be had.
  explicit Workers(int threads);
  ~Workers();

  // Runs `work` here, in a turn of `client` (a tenant), then `then` on `back`. What Stop finds
  // waiting, and what comes after it, is not run: `dropped` is called on `back` instead of `then`.
  // What runs is interrupted (base::Interrupted), and says so to its `then` itself.
  // Both may be empty. What waits is bounded by the callers: an HTTP connection has one request
  // at a time, one of gRPC grpc.streams_max. `work` must not throw. Where memory runs out, it
  // throws, and nothing follows.
  void Post(const std::string& client, boost::asio::any_io_executor back,
            std::function<void()> work, std::function<void()> then,
            std::function<void()> dropped = {});
  // Drops what waits; returns when what runs has ended and every `then` and `dropped` that follows
  // has run, for which its executor must still be running.
  void Stop();

 private:
  struct Task;
  struct Pool;
  // What waits of one client.
  struct Waiting {
    std::string client;
    std::deque<std::shared_ptr<Task>> tasks;
  };

  void Keep(const std::string& client, const std::shared_ptr<Task>& task) REQUIRES(mutex_);
  void RunNext();

  std::atomic<bool> stopping_ = false;
  base::Mutex mutex_;
  std::list<Waiting> waiting_ GUARDED_BY(mutex_);  // the next turn first
  std::unique_ptr<Pool> pool_ GUARDED_BY(mutex_);  // nullptr after Stop
  // Copied into whatever is between Post and the end of what follows.
  std::shared_ptr<const bool> ticket_ = std::make_shared<const bool>(true);
};

}  // namespace thermocline::server
