#include "server/core/workers.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "engine/base/interruption.h"
#include "engine/base/out_of_memory.h"

namespace thermocline::server {

namespace asio = boost::asio;

// Posts what follows when it is let go of, also by a pool that ends without having run it.
struct Workers::Task {
  // What follows, and the proof that it is still to come.
  struct Rest {
    std::function<void()> next;
    std::shared_ptr<const bool> ticket;

    // What it holds is let go of here.
    void Run() {
      const Rest mine = std::move(*this);
      mine.next();
    }
  };

  Task(asio::any_io_executor back_in, std::function<void()> work_in, std::function<void()> then_in,
       std::function<void()> dropped, std::shared_ptr<const bool> ticket)
      : back(std::move(back_in)),
        work(std::move(work_in)),
        then(std::move(then_in)),
        rest(std::make_shared<Rest>(Rest{std::move(dropped), std::move(ticket)})) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  asio::any_io_executor back;
  std::function<void()> work, then;
  std::shared_ptr<Rest> rest;  // `dropped`, until the work is done

  void Run(const std::atomic<bool>& stopping) {
    const base::InterruptScope scope(stopping);
    work();
    work = {};  // what it holds is not let go of behind `then`
    rest->next = std::move(then);
  }
  // Who sent this waits for what follows.
  ~Task() {  // NOLINT(bugprone-exception-escape): to post, only memory can be wanting
    if (!rest->next) return;
    base::UntilMemory([this] { asio::post(back, [rest = rest] { rest->Run(); }); });
  }
};

// Asio's own pool waits for ever for those of its threads that began, where another one cannot.
struct Workers::Pool {
  explicit Pool(int count) : io(count) {
    try {
      for (int i = 0; i < count; ++i) threads.emplace_back([this] { io.run(); });
    } catch (...) {
      End();
      throw;
    }
  }
  ~Pool() { End(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  void End() {
    io.stop();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }

  asio::io_context io;
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(io);
  std::vector<std::thread> threads;
};

Workers::Workers(int threads) : pool_(std::make_unique<Pool>(threads)) {}
Workers::~Workers() { Stop(); }

void Workers::Post(const std::string& client, asio::any_io_executor back,
                   std::function<void()> work, std::function<void()> then,
                   std::function<void()> dropped) {
  const auto task = std::make_shared<Task>(std::move(back), std::move(work), std::move(then),
                                           std::move(dropped), ticket_);
  const base::MutexLock lock(mutex_);
  if (pool_ == nullptr) return;
  try {
    // In this order: where there is no memory to keep the task, a thread finds nothing to do.
    asio::post(pool_->io, [this] { RunNext(); });
    Keep(client, task);
  } catch (...) {
    task->rest->next = {};  // the caller gets the exception instead
    throw;
  }
}

void Workers::Keep(const std::string& client, const std::shared_ptr<Task>& task) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Waiting& other) { return other.client == client; });
  if (found != waiting_.end()) return found->tasks.push_back(task);
  std::list<Waiting> fresh;
  fresh.push_back({.client = client, .tasks = {}});
  fresh.back().tasks.push_back(task);
  waiting_.splice(waiting_.end(), fresh);
}

void Workers::RunNext() {
  std::shared_ptr<Task> task;
  std::list<Waiting> done;  // let go of without the lock
  {
    const base::MutexLock lock(mutex_);
    if (waiting_.empty()) return;
    Waiting& next = waiting_.front();
    task = std::move(next.tasks.front());
    next.tasks.pop_front();
    // A client with more tasks goes to the end.
    if (next.tasks.empty()) {
      done.splice(done.end(), waiting_, waiting_.begin());
    } else {
      waiting_.splice(waiting_.end(), waiting_, waiting_.begin());
    }
  }
  task->Run(stopping_);
}

void Workers::Stop() {
  std::unique_ptr<Pool> pool;
  {
    const base::MutexLock lock(mutex_);
    pool.swap(pool_);
    stopping_ = true;
  }
  if (pool == nullptr) return;
  pool.reset();
  std::list<Waiting> dropped;
  {
    const base::MutexLock lock(mutex_);
    dropped.swap(waiting_);
  }
  dropped.clear();
  while (ticket_.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace thermocline::server
