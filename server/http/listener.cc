#include "server/http/listener.h"

#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>

#include "engine/base/log.h"
#include "server/http/session.h"

namespace thermocline::http {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

Listener::Listener(asio::io_context& io, server::Service& service)
    : io_(io), service_(service), acceptor_(io), retry_(io) {}

Result<std::shared_ptr<Listener>> Listener::Create(asio::io_context& io, server::Service& service) {
  const server::ServerConfig& config = service.config();
  boost::system::error_code error;
  const auto address =
      asio::ip::make_address(config.host == "localhost" ? "127.0.0.1" : config.host, error);
  if (error) return base::InvalidArgument("server.host '", config.host, "' is no IP address");
  auto listener = std::shared_ptr<Listener>(new Listener(io, service));
  const tcp::endpoint endpoint(address, static_cast<unsigned short>(config.port));
  listener->acceptor_.open(endpoint.protocol(), error);
  if (!error) listener->acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) listener->acceptor_.bind(endpoint, error);
  if (!error) listener->acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    return base::Unavailable("cannot listen on ", config.host, ":", config.port, ": ",
                             error.message(), "; choose another server.port");
  return listener;
}

void Listener::Start() { Accept(); }

void Listener::Accept() {
  acceptor_.async_accept(asio::make_strand(io_), [self = shared_from_this()](
                                                     boost::system::error_code error,
                                                     tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) {  // out of descriptors, most likely: wait for some to come back
      base::LogWarning("accept: ", error.message());
      self->retry_.expires_after(std::chrono::milliseconds(200));
      return self->retry_.async_wait([self](boost::system::error_code failed) {
        if (!failed) self->Accept();
      });
    }
    if (*self->connections_ >= self->service_.config().connections_max) {
      static constexpr std::string_view kFull =
          "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: "
          "close\r\n\r\n";
      boost::system::error_code ignored;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(kFull), ignored);
    } else {
      ++*self->connections_;
      std::make_shared<Session>(std::move(socket), self->service_, [count = self->connections_] {
        --*count;
      })->Start();
    }
    self->Accept();
  });
}

}  // namespace thermocline::http
