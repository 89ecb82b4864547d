#include "server/http/connection.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <limits>

#include <boost/asio/ip/tcp.hpp>

namespace thermocline::http {

namespace asio = boost::asio;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

namespace {
constexpr std::chrono::seconds kCloseGrace{2};
constexpr int kSendBufferBytes = 64 << 10;
// A Unix socket counts a write as taken only when all of it is read: with 36 KiB in one write, a
// slow reader's progress would stay invisible for long. With the kernel's overhead this size fills
// the 2 KiB that it allocates.
constexpr std::size_t kUnixWriteBytes = 3 << 9;
}  // namespace

Connection::Connection(StreamSocket socket, const std::shared_ptr<TlsContext>& tls, Peer peer)
    : peer_(std::move(peer)),
      write_bytes_max_(peer_.on_network ? std::numeric_limits<std::size_t>::max()
                                        : kUnixWriteBytes),
      socket_(std::move(socket)),
      context_(tls),
      timer_(socket_.get_executor()) {
  error_code ignored;
  if (peer_.on_network) socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  // A larger buffer would hold megabytes for a client that does not read, and its request would not
  // pause.
  socket_.set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), ignored);
  if (tls != nullptr) tls_.emplace(socket_, *tls);
}

void Connection::ExpireAfter(std::chrono::seconds time) {
  stuck_time_.reset();
  latest_.reset();
  SetDeadline(time);
}

void Connection::ExpireWhenStuck(const WriteLimits& limits, std::size_t bytes) {
  stuck_time_ = limits.stuck;
  latest_.reset();
  if (limits.bytes_per_s_min > 0) {
    const std::chrono::duration<double> allowed(static_cast<double>(bytes + UnsentBytes()) /
                                                limits.bytes_per_s_min);
    latest_ = Clock::now() + limits.stuck + std::chrono::duration_cast<Clock::duration>(allowed);
  }
  OnProgress();
}

void Connection::OnProgress() {
  unsent_bytes_ = UnsentBytes();
  SetDeadline(*stuck_time_);
}

void Connection::SetDeadline(std::chrono::seconds time) {
  deadline_ = Clock::now() + time;
  if (latest_.has_value()) deadline_ = std::min(*deadline_, *latest_);
  if (timer_armed_ && timer_.expiry() <= *deadline_) return;
  WaitForDeadline();
}

void Connection::ExpireNever() {
  stuck_time_.reset();
  latest_.reset();
  deadline_.reset();
}

// A socket becomes writable only when a good part of its buffer is free, so a slow client's
// progress is measured by the bytes that it has not taken.
int Connection::UnsentBytes() {
  int bytes = 0;
  return ::ioctl(socket_.native_handle(), SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

void Connection::WaitForDeadline() {
  timer_armed_ = true;
  timer_.expires_at(*deadline_);  // cancels an older wait, whose handler gets an error
  timer_.async_wait([weak = weak_from_this()](error_code error) {
    const auto self = weak.lock();
    if (error || self == nullptr) return;
    self->timer_armed_ = false;
    if (!self->deadline_.has_value()) return;
    if (Clock::now() < *self->deadline_) return self->WaitForDeadline();
    if (self->expired_) return self->CloseSocket();
    const bool late = self->latest_.has_value() && Clock::now() >= *self->latest_;
    if (self->stuck_time_.has_value() && !late && self->UnsentBytes() != self->unsent_bytes_)
      return self->OnProgress();
    self->expired_ = true;
    self->Cancel();
    self->ExpireAfter(kCloseGrace);  // a handler between two operations has not seen the expiry
  });
}

bool Connection::peer_disconnected() {
  pollfd state{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void Connection::Cancel() {
  error_code ignored;
  socket_.cancel(ignored);
}

void Connection::ShutdownSend() {
  error_code ignored;
  if (!tls_) socket_.shutdown(asio::socket_base::shutdown_send, ignored);
}

void Connection::Close() {
  if (closed_) return;
  closed_ = true;
  if (!tls_) return CloseSocket();
  // Sends close_notify and does not wait for the client's: the connection is not counted any more,
  // and many silent ones would take memory beyond the limit.
  ::SSL_set_shutdown(tls_->native_handle(), SSL_RECEIVED_SHUTDOWN);
  expired_ = true;
  ExpireAfter(kCloseGrace);  // in case the send buffer is full
  tls_->async_shutdown([self = shared_from_this()](error_code) { self->CloseSocket(); });
}

void Connection::CloseSocket() {
  closed_ = true;
  deadline_.reset();
  error_code ignored;
  socket_.shutdown(asio::socket_base::shutdown_send, ignored);
  socket_.close(ignored);
}

}  // namespace thermocline::http
