// A TCP connection, with or without TLS.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "loadtest/client/url.h"

namespace thermocline::loadtest {

namespace asio = boost::asio;
using boost::system::error_code;

struct WireOptions {
  asio::ssl::context* tls = nullptr;  // nullptr: plain TCP
  bool verify = true;                 // verify the certificate and its name
  std::string host = {};              // for SNI and the certificate
  int receive_buffer_bytes = 0;       // 0 = the system's
};

// I/O thread only. Handlers may own the wire.
class Wire {
 public:
  using Handler = std::function<void(error_code, std::size_t)>;
  using Endpoints = std::vector<asio::ip::tcp::endpoint>;

  Wire(asio::io_context& io, const WireOptions& options);
  // TCP and TLS handshakes; `handler` gets 0 bytes.
  void Connect(const Endpoints& endpoints, Handler handler);
  // Writes all of `bytes`, which must stay valid until the handler is called.
  void Write(std::string_view bytes, Handler handler);
  // Reads the available bytes, at least one, into `buffer`.
  void ReadSome(std::span<char> buffer, Handler handler);
  // Closes at once; pending operations end with an error.
  void Close();

 private:
  void Handshake(Handler handler);

  const WireOptions options_;
  asio::ip::tcp::socket socket_;
  std::unique_ptr<asio::ssl::stream<asio::ip::tcp::socket&>> tls_;
};

}  // namespace thermocline::loadtest
