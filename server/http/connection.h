// A byte stream to one client, over TCP or a Unix socket, with or without TLS, and with a deadline.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/buffers_prefix.hpp>

#include "server/http/tls.h"

namespace thermocline::http {

using StreamSocket = boost::asio::generic::stream_protocol::socket;

// The other end of a connection.
struct Peer {
  std::string address;        // "192.0.2.1", or "uid:1000" on a Unix socket
  std::string local_address;  // the address that the client connected to; "" on a Unix socket
  bool on_network = true;     // false: a Unix socket
  bool tls = false;
  bool admin = false;  // connected through the admin socket
};

// The minimum rate at which a client has to read.
struct WriteLimits {
  std::chrono::seconds stuck;  // time without progress
  int bytes_per_s_min = 0;     // on average, besides `stuck`; 0 = any rate
};

// A model of Asio's AsyncReadStream and AsyncWriteStream. It is one type for every transport, so
// that the HTTP code is compiled once. All calls come from one strand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using executor_type = boost::asio::any_io_executor;
  using lowest_layer_type = StreamSocket;

  // `tls`: nullptr = no TLS.
  Connection(StreamSocket socket, const std::shared_ptr<TlsContext>& tls, Peer peer);

  const Peer& peer() const { return peer_; }
  executor_type get_executor() { return socket_.get_executor(); }

  // An operation that is pending at the deadline ends with operation_aborted. A little later the
  // connection is closed, unless the deadline is moved.
  void ExpireAfter(std::chrono::seconds time);
  void ExpireNever();
  // The deadline for writing a message of `bytes`. Like ExpireAfter, but each write and each sign
  // that the client reads moves the deadline, at most to the time that this message and the unread
  // bytes before it take at the minimum rate. On a Unix socket a sign is every write_bytes_max_
  // bytes read; with TCP it is an acknowledgement, which with a full receive buffer comes only when
  // a good part is free.
  void ExpireWhenStuck(const WriteLimits& limits, std::size_t bytes);
  // True once a deadline has passed.
  bool expired() const { return expired_; }
  // Pending operations end with operation_aborted; the connection stays open.
  void Cancel();
  // True if the peer has stopped sending, even if not all of its bytes have been read.
  bool peer_disconnected();
  // Ends our side of the connection; the client may still send. Requires: no TLS.
  void ShutdownSend();
  // Flushes pending output, then closes. With TLS, the client can tell it from a truncation attack.
  void Close();

  // Bytes given to the kernel so far.
  std::shared_ptr<const std::atomic<std::int64_t>> written_bytes() const { return written_; }

  // Calls `handler(error)`, at once without TLS.
  template <typename Handler>
  void AsyncHandshake(Handler handler) {
    if (!tls_) return handler(boost::system::error_code());
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::move(handler));
  }
  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Handler>(handler));
    socket_.async_read_some(buffers, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (stuck_time_.has_value()) OnProgress();
    const auto piece = boost::beast::buffers_prefix(write_bytes_max_, buffers);
    auto counting = Counting(std::forward<Handler>(handler));
    if (tls_) return tls_->async_write_some(piece, std::move(counting));
    socket_.async_write_some(piece, std::move(counting));
  }

 private:
  // `handler`, before which the written bytes are counted.
  template <typename Handler>
  auto Counting(Handler&& handler) {
    auto executor = boost::asio::get_associated_executor(handler, get_executor());
    return boost::asio::bind_executor(
        executor, [written = written_, handler = std::forward<Handler>(handler)](
                      boost::system::error_code error, std::size_t bytes) mutable {
          *written += static_cast<std::int64_t>(bytes);
          std::move(handler)(error, bytes);
        });
  }
  void SetDeadline(std::chrono::seconds time);
  // Moves the deadline of ExpireWhenStuck.
  void OnProgress();
  void WaitForDeadline();
  // Bytes in the kernel's buffer that the client has not taken.
  int UnsentBytes();
  void CloseSocket();

  const std::shared_ptr<std::atomic<std::int64_t>> written_ =
      std::make_shared<std::atomic<std::int64_t>>(0);
  const Peer peer_;
  const std::size_t write_bytes_max_;  // per write
  StreamSocket socket_;
  std::shared_ptr<TlsContext> context_;  // the context of tls_, kept after a reload
  std::optional<boost::asio::ssl::stream<StreamSocket&>> tls_;
  boost::asio::steady_timer timer_;
  // The timer is armed once and checks the deadline when it fires, so that moving it is cheap.
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  std::optional<std::chrono::seconds> stuck_time_;  // of ExpireWhenStuck
  int unsent_bytes_ = 0;                            // when the deadline was set
  // The deadline is not moved beyond this.
  std::optional<std::chrono::steady_clock::time_point> latest_;
  bool timer_armed_ = false;
  bool expired_ = false;
  bool closed_ = false;
};

}  // namespace thermocline::http
