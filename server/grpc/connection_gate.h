// The doors of the gRPC interface. gRPC's library would take any number of connections, until
// nobody in the process had a descriptor left; here they are accepted and counted, and handed over.
#pragma once

#include <grpcpp/server_builder.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "engine/base/status.h"
#include "server/core/service.h"
#include "server/grpc/open_connections.h"
#include "server/net/acceptor.h"

namespace thermocline::rpc {

class ConnectionGate {
 public:
  using Acceptor = ::grpc::experimental::ExternalConnectionAcceptor;

  // Listens at once on `address`, "host:port" or "unix:path"; port 0 = any free one. `mode`: of the
  // socket's file. Unavailable, naming the address: not possible now.
  static Result<std::unique_ptr<ConnectionGate>> Open(const std::string& address, mode_t mode);
  // Removes the socket's file.
  ~ConnectionGate();
  ConnectionGate(const ConnectionGate&) = delete;
  ConnectionGate& operator=(const ConnectionGate&) = delete;

  // With the port that it has.
  const std::string& address() const { return address_; }
  // Hands connections to `acceptor`, no more than server.connections_max and
  // server.connections_per_address_max at a time; the others are closed.
  // A connection that sends more than its calls account for is shut (OpenConnections).
  void Start(server::Service& service, ConnectionCredit& credit,
             std::unique_ptr<Acceptor> acceptor);
  // Accepts nothing from here on.
  void Close();

 private:
  ConnectionGate() = default;
  // Looks at the connections, and again when it is time. Nothing is accepted while there is no
  // room for another.
  void Look();
  // Owns `socket`.
  void HandOver(int listener, int socket);

  std::string address_;
  std::vector<net::ListeningSocket> sockets_;  // until Start
  bool on_network_ = false;
  server::Service* service_ = nullptr;
  std::unique_ptr<Acceptor> library_;
  std::unique_ptr<OpenConnections> open_;  // of the thread
  boost::asio::io_context io_{1};
  boost::asio::steady_timer look_{io_};
  std::vector<std::shared_ptr<net::Acceptor>> acceptors_;
  std::thread thread_;
};

}  // namespace thermocline::rpc
