// Threads for work that may take long: templates, tokenizing, grammars. Those that carry streams,
// probes and signals stay free for them, whatever a template does. Clients take turns.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "engine/base/mutex.h"
#include "server/core/work_memory.h"

namespace thermocline::server {

// Requests up to this have workers of their own: their templates and tokens mostly take less than
// 10 ms (1.5 us a byte, measured), and need not wait behind longer ones.
inline constexpr std::size_t kShortBytesMax = 4 << 10;

// Thread-safe.
//
// At most `running` tasks run at once. A task that asks base::Interrupted when its turn is over
// pauses on its thread if a client with fewer running tasks waits. So a client's first task waits
// for one turn of the others, not for one of their tasks, while there are threads to begin it on.
// A client that is alone has at most `running` tasks begun.
class Workers {
 public:
  struct Params {
    int running = 1;  // tasks that run at once
    int begun = 1;    // tasks that run or pause, each on a thread of its own; at least `running`
    std::chrono::microseconds turn = std::chrono::milliseconds(5);
    // The requests of begun tasks take at most so many bytes, in the lanes of WorkMemory. A task
    // without room waits; while its client has no begun task, clients behind it in turn order
    // begin none in its lane. So a large task does not wait for ever while smaller ones come.
    std::size_t bytes_begun = std::numeric_limits<std::size_t>::max();
  };

  // Throws std::system_error where there are no threads to be had.
  explicit Workers(Params params);
  // Tasks that are begun run to their end.
  explicit Workers(int threads) : Workers(Params{.running = threads, .begun = threads}) {}
  ~Workers();

  // Runs `work` here, in turns of `client` (a tenant), then `then` on `back`. What Stop finds
  // waiting, and what comes after it, is not run: `dropped` is called on `back` instead of `then`.
  // What runs is interrupted (base::Interrupted), and says so to its `then` itself.
  // Both may be empty. `bytes`: of the request. What waits is bounded by the callers: an HTTP
  // connection has one request at a time, one of gRPC grpc.streams_max. `work` must not throw.
  // Where memory runs out, it throws, and nothing follows.
  void Post(const std::string& client, boost::asio::any_io_executor back,
            std::function<void()> work, std::function<void()> then,
            std::function<void()> dropped = {}, std::size_t bytes = 0);
  // Drops what waits; returns when what runs has ended and every `then` and `dropped` that follows
  // has run, for which its executor must still be running.
  void Stop();

 private:
  class Task;
  using Tasks = std::list<std::shared_ptr<Task>>;
  struct Client {
    std::string name;
    Tasks waiting, paused;
    int running = 0;
  };
  using Clients = std::list<Client>;

  void Keep(const std::string& name, const std::shared_ptr<Task>& task) REQUIRES(mutex_);
  // The client's next task; `reserved`: by clients before it.
  bool CanBegin(const Client& client, const ReservedLanes& reserved) const REQUIRES(mutex_);
  // The client of the next turn, one with the fewest running tasks; end(): nothing can go on.
  Clients::iterator Next() REQUIRES(mutex_);
  // Lets tasks run or go on while fewer than `running` do. Allocates nothing.
  void FillTurns() REQUIRES(mutex_);
  void GiveTurn(Clients::iterator client) REQUIRES(mutex_);
  void EndTurn(Client& client) REQUIRES(mutex_);
  // `done`: gets the client if it was its last one.
  void EndTask(const Task& task, Clients& done) REQUIRES(mutex_);
  // On the task's thread, whose turn is over: returns in its next one.
  void Pause(Task& task);
  // A thread's whole life.
  void RunTasks();
  void End();

  const Params params_;
  std::atomic<bool> stopping_ = false;   // written under mutex_
  std::atomic<bool> contended_ = false;  // somebody waits for a turn; written under mutex_
  base::Mutex mutex_;
  base::Condition begin_;                     // begun_ has a task, or it stops
  Clients clients_ GUARDED_BY(mutex_);        // of tasks there are; the next turn first
  Tasks begun_ GUARDED_BY(mutex_);            // whose turn it is, without a thread yet
  int running_ GUARDED_BY(mutex_) = 0;        // tasks
  WorkMemory memory_ GUARDED_BY(mutex_);      // of begun tasks
  int threads_taken_ GUARDED_BY(mutex_) = 0;  // by tasks that run or pause
  std::vector<std::thread> threads_;          // none after Stop
  base::Mutex stop_mutex_;                    // of threads_
  // Copied into whatever is between Post and the end of what follows.
  std::shared_ptr<const bool> ticket_ = std::make_shared<const bool>(true);
};

}  // namespace thermocline::server
