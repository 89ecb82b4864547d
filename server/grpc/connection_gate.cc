#include "server/grpc/connection_gate.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include <boost/asio/post.hpp>

#include "engine/base/log.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/thread_priority.h"
#include "server/core/run_guarded.h"
#include "server/net/address.h"

namespace thermocline::rpc {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kUnix = "unix:";
constexpr int kRetryMs = 200;  // between checks for room

std::string_view WithoutBrackets(std::string_view host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

Result<std::vector<net::ListeningSocket>> Listen(const std::string& address, mode_t mode) {
  if (address.starts_with(kUnix)) {
    std::vector<net::ListeningSocket> sockets;
    ASSIGN_OR_RETURN(net::ListeningSocket socket,
                     net::ListeningSocket::Unix(address.substr(kUnix.size()), mode));
    sockets.push_back(std::move(socket));
    return sockets;
  }
  const std::size_t colon = address.rfind(':');
  const std::string host(WithoutBrackets(std::string_view(address).substr(0, colon)));
  return net::ListeningSocket::Tcp(host, address.substr(colon + 1));
}

}  // namespace

Result<std::unique_ptr<ConnectionGate>> ConnectionGate::Open(const std::string& address,
                                                             mode_t mode) {
  std::unique_ptr<ConnectionGate> gate(new ConnectionGate());
  auto sockets = Listen(address, mode);
  if (!sockets.ok()) {
    return base::Unavailable("grpc.address: cannot listen on '", address,
                             "': ", sockets.status().message());
  }
  gate->sockets_ = *std::move(sockets);
  gate->on_network_ = !gate->sockets_.front().is_unix();
  gate->address_ = address;
  if (gate->on_network_)
    gate->address_ = StrCat(address.substr(0, address.rfind(':')), ":",
                            net::LocalAddress(gate->sockets_.front().fd()).port);
  return gate;
}

ConnectionGate::~ConnectionGate() { Close(); }

void ConnectionGate::Start(server::Service& service, ConnectionCredit& credit,
                           std::unique_ptr<Acceptor> acceptor) {
  service_ = &service;
  open_ = std::make_unique<OpenConnections>(service, credit);
  library_ = std::move(acceptor);
  for (net::ListeningSocket& socket : sockets_) {
    const int listener = socket.fd();
    acceptors_.push_back(std::make_shared<net::Acceptor>(io_.get_executor(), std::move(socket),
                                                         [this, listener](int taken) {
                                                           HandOver(listener, taken);
                                                           CheckConnections();
                                                         }));
    acceptors_.back()->Start();
  }
  sockets_.clear();
  thread_ = std::thread([this] {
    base::AskForShortTurns();
    server::RunGuarded(io_);
  });
  ::pthread_setname_np(thread_.native_handle(), "grpc-accept");
}

void ConnectionGate::Close() {
  sockets_.clear();
  if (!thread_.joinable()) return;
  base::UntilMemory([this] {
    boost::asio::post(io_, [this] {
      for (const auto& acceptor : acceptors_) acceptor->Close();
      io_.stop();
    });
  });
  thread_.join();
}

void ConnectionGate::CheckConnections() {
  const int next_ms = open_->Check();
  const bool room = open_->HasRoomForUnproven();
  for (const auto& acceptor : acceptors_) room ? acceptor->Resume() : acceptor->Pause();
  const int wait_ms = !room && next_ms < 0 ? kRetryMs : next_ms;
  if (wait_ms < 0) return;
  base::UntilMemory([this, wait_ms] {
    check_timer_.expires_after(milliseconds(wait_ms));
    check_timer_.async_wait([this](boost::system::error_code error) {
      if (!error) CheckConnections();
    });
  });
}

void ConnectionGate::HandOver(int listener, int socket) {
  try {
    if (open_->Admit(socket)) {
      const int on = 1;
      if (on_network_) ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      Acceptor::NewConnectionParameters connection;
      connection.listener_fd = listener;
      connection.fd = socket;
      library_->HandleNewConnection(&connection);
      return;
    }
    service_->metrics().RequestRejected("connections");
  } catch (const std::bad_alloc&) {
    base::LogWarning("gRPC: no memory for a connection");
  }
  ::close(socket);
}

}  // namespace thermocline::rpc
