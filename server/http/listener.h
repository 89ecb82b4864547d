// Where clients come in: TCP, Unix sockets, sockets that systemd opened; and how many may.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "engine/base/mutex.h"
#include "server/core/passed_socket.h"
#include "server/core/service.h"
#include "server/core/socket_file.h"
#include "server/core/strand_pool.h"
#include "server/http/connection.h"
#include "server/http/connection_count.h"
#include "server/http/router.h"

namespace thermocline::http {

// Whether the certificate and its key can be used, if there are any. Errors as MakeTlsContext.
Status CheckTls(const server::ServerConfig& config);

// Unavailable, with the key: server.unix_socket or .admin_socket is in no folder, or a file that is
// no socket is there. Whether somebody listens there already is for the start to say.
Status CheckSockets(const server::ServerConfig& config);

// Thread-compatible; runs on its io_context.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // Opens what the configuration names, but for what `passed` brings: a socket named "http",
  // "https" or "admin" stands for server.host with server.port, the same by TLS, and
  // server.admin_socket; other names for "http". Takes their descriptors. `router` outlives it.
  // Unavailable naming the address if it cannot be bound; InvalidArgument: no IP address, no TLS,
  // or strangers could come in.
  static Result<std::shared_ptr<Listener>> Create(boost::asio::io_context& io,
                                                  server::Service& service, const Router& router,
                                                  const std::vector<server::PassedSocket>& passed);
  // Removes the files of its sockets.
  ~Listener();

  // The log then says where it listens.
  void Start();
  // For Reloader: the new certificate is for connections from then on.
  Result<std::function<void()>> PrepareReload(const server::Live& live);

 private:
  using Protocol = boost::asio::generic::stream_protocol;
  struct Door {
    boost::asio::basic_socket_acceptor<Protocol> acceptor;
    boost::asio::steady_timer retry;
    bool tls = false;
    bool admin = false;
    server::SocketFile file = {};  // of a Unix socket that was not passed
    bool told = false;             // that nothing can be accepted
  };

  Listener(boost::asio::io_context& io, server::Service& service, const Router& router)
      : io_(io), strands_(io), service_(service), router_(router) {}
  Status OpenAll(const std::vector<server::PassedSocket>& passed);
  Status TakePassed(const server::PassedSocket& socket);
  Status OpenTcp(const std::string& host, int port);
  Status OpenUnix(const std::string& path, unsigned mode, bool admin);
  Status CheckStrangers(const server::Live& live) const;
  Door& AddDoor();
  void Accept(Door& door);
  // Whatever happens, `door` stays open.
  void AcceptNext(Door& door);
  void AcceptLater(Door& door, const std::string& why);
  // Takes a connection that waits, if any.
  void TakeNext(Door& door);
  void OnAccepted(Door& door, StreamSocket socket);
  void TurnAway(StreamSocket socket, bool tls, ConnectionCount::Entry why);

  std::shared_ptr<TlsContext> tls() {
    const base::MutexLock lock(tls_mutex_);
    return tls_;
  }
  void SetTls(std::shared_ptr<TlsContext> tls) {
    const base::MutexLock lock(tls_mutex_);
    tls_ = std::move(tls);
  }

  boost::asio::io_context& io_;
  server::StrandPool strands_;  // of connections
  server::Service& service_;
  const Router& router_;
  std::list<Door> doors_;  // their addresses stay
  base::Mutex tls_mutex_;
  std::shared_ptr<TlsContext> tls_ GUARDED_BY(tls_mutex_);  // nullptr = none
  // Shared with the sessions, which may outlive the listener.
  const std::shared_ptr<std::atomic<int>> turned_away_ = std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<ConnectionCount> connections_ = std::make_shared<ConnectionCount>();
};

}  // namespace thermocline::http
