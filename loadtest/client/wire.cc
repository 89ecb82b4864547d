#include "loadtest/client/wire.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/write.hpp>

namespace thermocline::loadtest {

using asio::ip::tcp;

Wire::Wire(asio::io_context& io, const WireOptions& options) : options_(options), socket_(io) {
  if (options.tls != nullptr)
    tls_ = std::make_unique<asio::ssl::stream<tcp::socket&>>(socket_, *options.tls);
}

void Wire::Connect(const Endpoints& endpoints, Handler handler) {
  asio::async_connect(
      socket_, endpoints,
      [this, handler = std::move(handler)](error_code error, const tcp::endpoint&) mutable {
        if (error) return handler(error, 0);
        error_code ignored;
        socket_.set_option(tcp::no_delay(true), ignored);
        if (const int bytes = options_.receive_buffer_bytes; bytes > 0)
          socket_.set_option(tcp::socket::receive_buffer_size(bytes), ignored);
        tls_ != nullptr ? Handshake(std::move(handler)) : handler(error, 0);
      });
}

void Wire::Handshake(Handler handler) {
  error_code error;
  if (options_.verify) {
    tls_->set_verify_mode(asio::ssl::verify_peer, error);
    tls_->set_verify_callback(asio::ssl::host_name_verification(options_.host), error);
  }
  ::SSL_set_tlsext_host_name(tls_->native_handle(), options_.host.c_str());
  tls_->async_handshake(asio::ssl::stream_base::client,
                        [handler = std::move(handler)](error_code result) { handler(result, 0); });
}

void Wire::Write(std::string_view bytes, Handler handler) {
  const auto buffer = asio::buffer(bytes.data(), bytes.size());
  tls_ != nullptr ? asio::async_write(*tls_, buffer, std::move(handler))
                  : asio::async_write(socket_, buffer, std::move(handler));
}

void Wire::ReadSome(std::span<char> buffer, Handler handler) {
  const auto target = asio::buffer(buffer.data(), buffer.size());
  tls_ != nullptr ? tls_->async_read_some(target, std::move(handler))
                  : socket_.async_read_some(target, std::move(handler));
}

void Wire::Close() {
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace thermocline::loadtest
