#include "server/net/acceptor.h"

#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "engine/base/log.h"

namespace thermocline::net {
namespace {

using boost::system::error_code;

constexpr std::chrono::milliseconds kRetry{200};

}  // namespace

Acceptor::Acceptor(const boost::asio::any_io_executor& executor, ListeningSocket socket,
                   Taken taken)
    : socket_(std::move(socket)),
      taken_(std::move(taken)),
      readable_(executor, socket_.fd()),
      retry_(executor) {}

void Acceptor::Accept() {
  readable_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                       [self = shared_from_this()](error_code error) {
                         self->waiting_ = false;
                         if (!error) self->TakeNext();
                       });
  waiting_ = true;
}

// Uses accept4, because asio's acceptor drops its handler, and so the listener, when it has no
// memory for the connection.
void Acceptor::TakeNext() {
  if (paused_ || closed_) return;
  const int socket = ::accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  const int error = errno;
  const bool gone = error == EAGAIN || error == EINTR || error == ECONNABORTED;
  if (socket < 0 && !gone) return AcceptLater(std::strerror(error));
  AcceptNext();  // first, because the handler of this connection may throw
  if (socket < 0) return;
  told_ = false;
  taken_(socket);
}

void Acceptor::AcceptNext() {
  try {
    Accept();
  } catch (const std::exception& error) {
    AcceptLater(error.what());
  }
}

// Most likely the process is out of descriptors or memory, so it retries after a while.
void Acceptor::AcceptLater(const std::string& why) {
  retry_.expires_after(kRetry);
  retry_.async_wait([self = shared_from_this()](error_code failed) {
    self->waiting_ = false;
    if (!failed && !self->paused_ && !self->closed_) self->AcceptNext();
  });
  waiting_ = true;
  if (!std::exchange(told_, true)) base::LogWarning("no connection can be accepted for now: ", why);
}

void Acceptor::Pause() { paused_ = true; }

void Acceptor::Resume() {
  if (!std::exchange(paused_, false) || waiting_ || closed_) return;
  AcceptNext();
}

void Acceptor::Close() {
  if (std::exchange(closed_, true)) return;
  retry_.cancel();
  readable_.cancel();
  readable_.release();
  const ListeningSocket closing = std::move(socket_);
}

}  // namespace thermocline::net
