#include "server/core/workers.h"

#include <chrono>
#include <thread>

#include <boost/asio/post.hpp>

namespace thermocline::server {

namespace asio = boost::asio;

// Posts what follows when it is let go of, also by a pool that ends without having run it.
struct Workers::Task {
  Task(asio::any_io_executor back_in, std::function<void()> work_in, std::function<void()> then_in,
       std::function<void()> dropped, std::shared_ptr<const bool> ticket_in)
      : back(std::move(back_in)),
        work(std::move(work_in)),
        then(std::move(then_in)),
        next(std::move(dropped)),
        ticket(std::move(ticket_in)) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  asio::any_io_executor back;
  std::function<void()> work, then;
  std::function<void()> next;  // `dropped`, until the work is done
  std::shared_ptr<const bool> ticket;

  void Run() {
    work();
    work = {};  // what it holds is not let go of behind `then`
    next = std::move(then);
  }
  ~Task() {  // NOLINT(bugprone-exception-escape): without memory to post, the process ends
    if (!next) return;
    asio::post(back, [next = std::move(next), ticket = std::move(ticket)] { next(); });
  }
};

Workers::Workers(int threads)
    : pool_(std::make_unique<asio::thread_pool>(static_cast<std::size_t>(threads))) {}

void Workers::Post(asio::any_io_executor back, std::function<void()> work,
                   std::function<void()> then, std::function<void()> dropped) {
  auto task = std::make_shared<Task>(std::move(back), std::move(work), std::move(then),
                                     std::move(dropped), ticket_);
  const base::MutexLock lock(mutex_);
  if (pool_ != nullptr) asio::post(*pool_, [task = std::move(task)] { task->Run(); });
}

void Workers::Stop() {
  std::unique_ptr<asio::thread_pool> pool;
  {
    const base::MutexLock lock(mutex_);
    pool.swap(pool_);
  }
  if (pool == nullptr) return;
  pool->stop();
  pool.reset();
  while (ticket_.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace thermocline::server
