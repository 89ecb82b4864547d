#include "server/workers.h"

#include <chrono>
#include <thread>

#include <boost/asio/post.hpp>

namespace thermocline::server {

namespace asio = boost::asio;

Workers::Workers(int threads)
    : pool_(std::make_unique<asio::thread_pool>(static_cast<std::size_t>(threads))) {}

void Workers::Post(asio::any_io_executor back, std::function<void()> work,
                   std::function<void()> then) {
  const std::lock_guard lock(mutex_);
  if (pool_ == nullptr) return;
  asio::post(*pool_, [back = std::move(back), work = std::move(work), then = std::move(then),
                      ticket = ticket_]() mutable {
    work();
    asio::post(back, [then = std::move(then), ticket = std::move(ticket)] { then(); });
  });
}

void Workers::Stop() {
  std::unique_ptr<asio::thread_pool> pool;
  {
    const std::lock_guard lock(mutex_);
    pool.swap(pool_);
  }
  if (pool == nullptr) return;
  pool->stop();
  pool.reset();
  while (ticket_.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace thermocline::server
