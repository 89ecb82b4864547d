// Accepts connections and counts them.
#pragma once

#include <atomic>
#include <memory>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/service.h"

namespace thermocline::http {

// Thread-compatible; runs on its io_context.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // Unavailable naming the address if it cannot be bound.
  static Result<std::shared_ptr<Listener>> Create(boost::asio::io_context& io,
                                                  server::Service& service);

  void Start();
  int port() const { return acceptor_.local_endpoint().port(); }

 private:
  Listener(boost::asio::io_context& io, server::Service& service);
  void Accept();

  boost::asio::io_context& io_;
  server::Service& service_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer retry_;
  // Shared with the sessions, which may outlive the listener.
  std::shared_ptr<std::atomic<int>> connections_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace thermocline::http
