// Returns heap memory to the system after large requests.
#pragma once

#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/core/service.h"

namespace thermocline::server {

// Checks every 5 s, on a thread of `io` that serves no requests. The heap would keep freed memory:
// 300 MiB were measured after bodies of 4 MiB.
class HeapTrim : public std::enable_shared_from_this<HeapTrim> {
 public:
  HeapTrim(boost::asio::io_context& io, Service& service) : timer_(io), service_(service) {}
  void Start();

 private:
  boost::asio::steady_timer timer_;
  Service& service_;
};

}  // namespace thermocline::server
