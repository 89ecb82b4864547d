// The listening sockets of the gRPC interface. gRPC's library would accept connections until the
// process has no descriptors left; here they are accepted, counted and handed over.
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

  // Listens at once on `address`, "host:port" or "unix:path"; port 0 = any free one. `mode`: the
  // socket file's permissions. Unavailable, naming the address: it cannot listen there now.
  static Result<std::unique_ptr<ConnectionGate>> Open(const std::string& address, mode_t mode);
  // Removes the socket's file.
  ~ConnectionGate();
  ConnectionGate(const ConnectionGate&) = delete;
  ConnectionGate& operator=(const ConnectionGate&) = delete;

  // The address with its actual port.
  const std::string& address() const { return address_; }
  // Hands connections to `acceptor`, at most server.connections_max and
  // server.connections_per_address_max at a time; others are closed. A connection that sends more
  // than its calls justify is shut (OpenConnections).
  void Start(server::Service& service, ConnectionCredit& credit,
             std::unique_ptr<Acceptor> acceptor);
  // Accepts no connection after this.
  void Close();

 private:
  ConnectionGate() = default;
  // Checks the connections, and schedules the next check. Accepts no connection while there is no
  // room.
  void CheckConnections();
  // Takes ownership of `socket`.
  void HandOver(int listener, int socket);

  std::string address_;
  std::vector<net::ListeningSocket> sockets_;  // until Start
  bool on_network_ = false;
  server::Service* service_ = nullptr;
  std::unique_ptr<Acceptor> library_;
  std::unique_ptr<OpenConnections> open_;  // used by the thread only
  boost::asio::io_context io_{1};
  boost::asio::steady_timer check_timer_{io_};
  std::vector<std::shared_ptr<net::Acceptor>> acceptors_;
  std::thread thread_;
};

}  // namespace thermocline::rpc
