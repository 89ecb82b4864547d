#include "server/grpc/unread_answer.h"

#include <mutex>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "engine/base/out_of_memory.h"

namespace thermocline::rpc {

// The timer of the client's deadline. Outlives its answer while the timer runs.
class UnreadAnswer::Watch : public std::enable_shared_from_this<Watch> {
 public:
  Watch(boost::asio::io_context& io, ::grpc::CallbackServerContext& context)
      : io_(io), timer_(io), context_(&context) {}

  // Called at most once.
  void Start(std::chrono::seconds allowed) {
    timer_.expires_after(allowed);
    timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (!error) self->Cancel();
    });
    started_ = true;
  }
  void End() {
    {
      const std::lock_guard lock(mutex_);
      context_ = nullptr;
    }
    if (!started_) return;
    base::UntilMemory(
        [this] { boost::asio::post(io_, [self = shared_from_this()] { self->timer_.cancel(); }); });
  }

 private:
  void Cancel() {
    const std::lock_guard lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }

  boost::asio::io_context& io_;
  boost::asio::steady_timer timer_;
  bool started_ = false;
  // Recursive, because the library may end the call within TryCancel.
  std::recursive_mutex mutex_;
  ::grpc::CallbackServerContext* context_;  // nullptr: the call has ended
};

UnreadAnswer::UnreadAnswer(boost::asio::io_context& io, server::RequestMemory& memory,
                           const std::string& client, ::grpc::CallbackServerContext& context)
    : hold_(memory, client), watch_(std::make_shared<Watch>(io, context)) {}

UnreadAnswer::~UnreadAnswer() { watch_->End(); }

Status UnreadAnswer::Begin(std::size_t bytes, std::chrono::seconds allowed) {
  if (!hold_.ReserveForAnswer(bytes)) return server::UnreadAnswers();
  watch_->Start(allowed);
  return OkStatus();
}

}  // namespace thermocline::rpc
