// Threads for long work: templates, tokenizing, grammars. The threads for streams, probes and
// signals stay responsive meanwhile. Clients take turns.
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

// Requests up to this size have separate workers: preparing them mostly takes less than 10 ms (1.5
// us a byte, measured), so that they do not wait behind longer ones.
inline constexpr std::size_t kShortBytesMax = 4 << 10;

// Thread-safe.
//
// At most `running` tasks run at once. A task that calls base::Interrupted after its turn is over
// pauses on its thread if a client with fewer running tasks waits. So a client's first task waits
// for one turn of the others, not for their whole tasks, while there are threads to begin it on. A
// client that is alone has at most `running` tasks begun.
class Workers {
 public:
  struct Params {
    int running = 1;   // tasks that run at once
    int begun = 1;     // tasks that run or pause, each on its own thread; at least `running`
    int niceness = 0;  // of its threads, as nice(2)
    std::chrono::microseconds turn = std::chrono::milliseconds(5);
    // A limit on the bytes of begun tasks' requests, in the lanes of WorkMemory. A task without
    // room waits; while its client has no begun task, later clients in turn order begin no task in
    // its lane. So a large task does not wait forever while smaller ones arrive.
    std::size_t bytes_begun = std::numeric_limits<std::size_t>::max();
  };

  // Throws std::system_error if threads cannot be created.
  explicit Workers(Params params);
  // No turns: tasks run to their end once begun.
  explicit Workers(int threads) : Workers(Params{.running = threads, .begun = threads}) {}
  ~Workers();

  // Runs `work` on a worker, in the turns of `client` (a tenant), then `then` on `back`. Tasks that
  // wait when Stop is called, or are posted after it, do not run: `dropped` is called on `back`
  // instead of `then`. Running tasks are interrupted (base::Interrupted) and must tell their `then`
  // themselves. Both may be empty. `bytes`: size of the request. The callers limit the number of
  // waiting tasks: an HTTP connection has one request at a time, a gRPC connection
  // grpc.streams_max. `work` must not throw. Throws when out of memory; then neither `then` nor
  // `dropped` is called.
  void Post(const std::string& client, boost::asio::any_io_executor back,
            std::function<void()> work, std::function<void()> then,
            std::function<void()> dropped = {}, std::size_t bytes = 0);
  // Drops waiting tasks; returns when running ones have ended and every `then` and `dropped` has
  // run. Requires: their executors still run.
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

  void Enqueue(const std::string& name, const std::shared_ptr<Task>& task) REQUIRES(mutex_);
  // True if the client's next task can begin; `reserved`: lanes reserved by clients before it.
  bool CanBegin(const Client& client, const ReservedLanes& reserved) const REQUIRES(mutex_);
  // The client of the next turn, one with the fewest running tasks; end() if no task can go on.
  Clients::iterator Next() REQUIRES(mutex_);
  // Gives turns until `running` tasks run. Allocates nothing.
  void FillTurns() REQUIRES(mutex_);
  void GiveTurn(Clients::iterator client) REQUIRES(mutex_);
  void EndTurn(Client& client) REQUIRES(mutex_);
  // `done` receives the client if this was its last task.
  void EndTask(const Task& task, Clients& done) REQUIRES(mutex_);
  // Called on the task's thread when its turn is over; returns in its next turn.
  void Pause(Task& task);
  // The loop of a worker thread.
  void RunTasks();
  void End();

  const Params params_;
  std::atomic<bool> stopping_ = false;   // written under mutex_
  std::atomic<bool> contended_ = false;  // a task waits for a turn; written under mutex_
  base::Mutex mutex_;
  base::Condition begin_;                     // signalled when begun_ has a task or when stopping
  Clients clients_ GUARDED_BY(mutex_);        // clients with tasks; the next turn first
  Tasks begun_ GUARDED_BY(mutex_);            // tasks that have a turn but no thread yet
  int running_ GUARDED_BY(mutex_) = 0;        // number of tasks
  WorkMemory memory_ GUARDED_BY(mutex_);      // of begun tasks
  int threads_taken_ GUARDED_BY(mutex_) = 0;  // by tasks that run or pause
  std::vector<std::thread> threads_;          // empty after Stop
  base::Mutex stop_mutex_;                    // guards threads_
  // Copied into every pending task until its continuation has run.
  std::shared_ptr<const bool> ticket_ = std::make_shared<const bool>(true);
};

}  // namespace thermocline::server
