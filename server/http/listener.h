// Accepts clients: by TCP, Unix sockets, sockets that systemd opened; and how many may.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "engine/base/mutex.h"
#include "server/core/service.h"
#include "server/core/strand_pool.h"
#include "server/http/connection.h"
#include "server/http/router.h"
#include "server/net/acceptor.h"
#include "server/net/connection_count.h"
#include "server/net/passed_socket.h"

namespace thermocline::http {

// Checks that the certificate and its key can be used, if there are any. Errors as MakeTlsContext.
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
                                                  const std::vector<net::PassedSocket>& passed);
  // Removes the files of its sockets, once nothing is accepted any more.
  ~Listener();

  // The log then says where it listens.
  void Start();
  // For Reloader: the new certificate is for connections from then on.
  Result<std::function<void()>> PrepareReload(const server::Live& live);

 private:
  // A way in for clients.
  struct Door {
    std::shared_ptr<net::Acceptor> acceptor;
    bool tls = false;
    bool admin = false;
  };

  Listener(boost::asio::io_context& io, server::Service& service, const Router& router)
      : io_(io), strands_(io), service_(service), router_(router) {}
  Status OpenAll(const std::vector<net::PassedSocket>& passed);
  Status TakePassed(const net::PassedSocket& socket);
  Status OpenTcp(const std::string& host, int port);
  Status OpenUnix(const std::string& path, unsigned mode, bool admin);
  Status CheckStrangers(const server::Live& live) const;
  void AddDoor(net::ListeningSocket socket, bool tls, bool admin);
  // Owns `socket`.
  void OnAccepted(const Door& door, int socket);
  void Begin(const Door& door, StreamSocket socket);
  void TurnAway(StreamSocket socket, bool tls, net::ConnectionCount::Entry why);

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
  // Both are shared with the sessions, which may outlive the listener.
  const std::shared_ptr<net::ConnectionCount> connections_ =
      std::make_shared<net::ConnectionCount>();
  const std::shared_ptr<std::atomic<int>> turned_away_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace thermocline::http
