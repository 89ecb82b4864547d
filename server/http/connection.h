// A stream of bytes to one client, TCP or a Unix socket, in the clear or by TLS, with a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
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
  std::string local_address;  // by which it reached us; "" on a Unix socket
  bool on_network = true;     // false: a Unix socket
  bool tls = false;
  bool admin = false;  // came in by the admin socket
};

// The least pace at which a client has to read.
struct WriteLimits {
  std::chrono::seconds stuck;  // without taking anything
  int bytes_per_s_min = 0;     // on average, beside `stuck`; 0 = any rate
};

// A model of Asio's AsyncReadStream and AsyncWriteStream; one type for every transport, so that
// what speaks HTTP is compiled once. All calls come from one strand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using executor_type = boost::asio::any_io_executor;
  using lowest_layer_type = StreamSocket;

  // `tls`: nullptr = in the clear.
  Connection(StreamSocket socket, const std::shared_ptr<TlsContext>& tls, Peer peer);

  const Peer& peer() const { return peer_; }
  executor_type get_executor() { return socket_.get_executor(); }

  // An operation that is pending when the deadline passes ends with operation_aborted, and a little
  // later the connection is closed, unless the deadline is moved.
  void ExpireAfter(std::chrono::seconds time);
  void ExpireNever();
  // For a message of `bytes`. Like ExpireAfter, but each write, and whatever the client is seen to
  // take meanwhile, moves the deadline, up to the time that the message and what was written before
  // it take at the lowest rate. On a Unix socket that is every write_bytes_max_ it has read; by TCP
  // what its system has acknowledged, which, once its buffer is full, waits until a good part of
  // that is free.
  void ExpireWhenStuck(const WriteLimits& limits, std::size_t bytes);
  // True once a deadline has passed.
  bool expired() const { return expired_; }
  // Ends pending operations with operation_aborted; the connection goes on.
  void Cancel();
  // True if the peer sends no more, even if not all that it sent has been read.
  bool peer_left();
  // The client is told that nothing more comes; it may still send. Without TLS only.
  void ShutdownSend();
  // Sends what is written, then closes. A TLS client can tell that the end is no attack.
  void Close();

  // `handler(error)`, at once without TLS.
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
    if (stuck_time_.has_value()) NoteProgress();
    const auto piece = boost::beast::buffers_prefix(write_bytes_max_, buffers);
    if (tls_) return tls_->async_write_some(piece, std::forward<Handler>(handler));
    socket_.async_write_some(piece, std::forward<Handler>(handler));
  }

 private:
  void SetDeadline(std::chrono::seconds time);
  // Moves the deadline of ExpireWhenStuck.
  void NoteProgress();
  void WaitForDeadline();
  // Bytes with the system that the client has not taken.
  int Untaken();
  void CloseSocket();

  const Peer peer_;
  const std::size_t write_bytes_max_;  // of one write
  StreamSocket socket_;
  std::shared_ptr<TlsContext> context_;  // that of tls_, also after a reload
  std::optional<boost::asio::ssl::stream<StreamSocket&>> tls_;
  boost::asio::steady_timer timer_;
  // The timer is armed once and looks again when it fires: moving the deadline costs nothing.
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  std::optional<std::chrono::seconds> stuck_time_;               // of ExpireWhenStuck
  int untaken_ = 0;                                              // when that deadline was set
  std::optional<std::chrono::steady_clock::time_point> latest_;  // beyond which it does not move
  bool timer_armed_ = false;
  bool expired_ = false;
  bool closed_ = false;
};

}  // namespace thermocline::http
