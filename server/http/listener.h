// Accepts connections by TCP, Unix sockets and sockets from systemd, up to their limits.
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

// Checks that the certificate and key, if configured, are usable. Errors as MakeTlsContext.
Status CheckTls(const server::ServerConfig& config);

// Unavailable, with the key: the folder of server.unix_socket or .admin_socket does not exist, or
// another kind of file is there. Whether a server listens there already is checked at the start.
Status CheckSockets(const server::ServerConfig& config);

// Thread-compatible; runs on its io_context.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // Opens the configured sockets, except those replaced by `passed`: a socket named "http", "https"
  // or "admin" replaces server.host with server.port, the same with TLS, or server.admin_socket;
  // other names count as "http". Takes ownership of their descriptors. `router` outlives it.
  // Unavailable, naming the address: it cannot be bound; InvalidArgument: no IP address, no TLS, or
  // other hosts could connect without a key.
  static Result<std::shared_ptr<Listener>> Create(boost::asio::io_context& io,
                                                  server::Service& service, const Router& router,
                                                  const std::vector<net::PassedSocket>& passed);
  // Removes the files of its sockets. Requires: it accepts no connections any more.
  ~Listener();

  // Starts to accept, and logs the addresses.
  void Start();
  // For Reloader: later connections use the new certificate.
  Result<std::function<void()>> PrepareReload(const server::ReloadableConfig& reloadable);

 private:
  // A listening socket.
  struct ListenSocket {
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
  Status CheckOpenAccess(const server::ReloadableConfig& reloadable) const;
  void AddSocket(net::ListeningSocket socket, bool tls, bool admin);
  // Takes ownership of `socket`.
  void OnAccepted(const ListenSocket& listening, int socket);
  void Begin(const ListenSocket& listening, StreamSocket socket);
  void Reject(StreamSocket socket, bool tls, net::ConnectionCount::Entry why);

  std::shared_ptr<TlsContext> tls() {
    const base::MutexLock lock(tls_mutex_);
    return tls_;
  }
  void SetTls(std::shared_ptr<TlsContext> tls) {
    const base::MutexLock lock(tls_mutex_);
    tls_ = std::move(tls);
  }

  boost::asio::io_context& io_;
  server::StrandPool strands_;  // for connections
  server::Service& service_;
  const Router& router_;
  std::list<ListenSocket> sockets_;  // a list, so that references stay valid
  base::Mutex tls_mutex_;
  std::shared_ptr<TlsContext> tls_ GUARDED_BY(tls_mutex_);  // nullptr = none
  // Both are shared with sessions, which may outlive the listener.
  const std::shared_ptr<net::ConnectionCount> connections_ =
      std::make_shared<net::ConnectionCount>();
  const std::shared_ptr<std::atomic<int>> rejected_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace thermocline::http
