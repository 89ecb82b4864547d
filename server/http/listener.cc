#include "server/http/listener.h"

#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/strand.hpp>

#include "engine/base/log.h"
#include "server/http/rejected_connection.h"
#include "server/http/session.h"
#include "server/net/address.h"
#include "server/net/socket_file.h"
#include "server/protocol/error.h"

namespace thermocline::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

}  // namespace

Status CheckTls(const server::ServerConfig& config) {
  if (config.tls_certificate.empty()) return OkStatus();
  return MakeTlsContext(config.tls_certificate, config.tls_key).status();
}

Status CheckSockets(const server::ServerConfig& config) {
  const std::pair<const char*, const std::string&> sockets[] = {
      {"server.unix_socket", config.unix_socket}, {"server.admin_socket", config.admin_socket}};
  for (const auto& [key, path] : sockets) {
    const Status place = path.empty() ? OkStatus() : net::SocketFile::CheckPlace(path);
    if (!place.ok()) return place.Annotate(key);
  }
  return OkStatus();
}

Result<std::shared_ptr<Listener>> Listener::Create(asio::io_context& io, server::Service& service,
                                                   const Router& router,
                                                   const std::vector<net::PassedSocket>& passed) {
  auto listener = std::shared_ptr<Listener>(new Listener(io, service, router));
  const auto reloadable = service.reloadable();
  if (!reloadable->config.tls_certificate.empty()) {
    ASSIGN_OR_RETURN(
        auto tls, MakeTlsContext(reloadable->config.tls_certificate, reloadable->config.tls_key));
    listener->SetTls(std::move(tls));
  }
  RETURN_IF_ERROR(listener->OpenAll(passed));
  RETURN_IF_ERROR(listener->CheckOpenAccess(*reloadable));
  return listener;
}

Listener::~Listener() = default;

Status Listener::OpenAll(const std::vector<net::PassedSocket>& passed) {
  const server::ServerConfig& config = service_.config();
  bool tcp_passed = false, admin_passed = false;
  for (const net::PassedSocket& socket : passed) {
    RETURN_IF_ERROR(TakePassed(socket));
    (socket.name == "admin" ? admin_passed : tcp_passed) = true;
  }
  if (!tcp_passed && !config.host.empty()) RETURN_IF_ERROR(OpenTcp(config.host, config.port));
  if (!config.unix_socket.empty()) {
    unsigned mode = 0;
    const std::string& text = config.unix_socket_mode;
    std::from_chars(text.data(), text.data() + text.size(), mode, 8);
    RETURN_IF_ERROR(OpenUnix(config.unix_socket, mode, false));
  }
  if (!admin_passed && !config.admin_socket.empty())
    RETURN_IF_ERROR(OpenUnix(config.admin_socket, 0600, true));
  if (sockets_.empty()) {
    return base::InvalidArgument(
        "there is nothing to listen on: set server.host, server.unix_socket or ",
        "server.admin_socket");
  }
  return OkStatus();
}

void Listener::AddSocket(net::ListeningSocket socket, bool tls, bool admin) {
  ListenSocket& listening =
      sockets_.emplace_back(ListenSocket{.acceptor = nullptr, .tls = tls, .admin = admin});
  listening.acceptor = std::make_shared<net::Acceptor>(
      asio::make_strand(io_), std::move(socket), [weak = weak_from_this(), &listening](int taken) {
        const auto self = weak.lock();
        self != nullptr ? self->OnAccepted(listening, taken) : (void)::close(taken);
      });
}

Status Listener::TakePassed(const net::PassedSocket& socket) {
  ASSIGN_OR_RETURN(net::ListeningSocket taken, net::ListeningSocket::Passed(socket));
  const bool admin = socket.name == "admin", https = socket.name == "https";
  if (socket.name == "grpc")
    return base::InvalidArgument("gRPC takes no socket that was passed; set grpc.address");
  if (admin && !taken.is_unix())
    return base::InvalidArgument("the socket 'admin' that was passed must be a Unix socket");
  if (https && tls() == nullptr) {
    return base::InvalidArgument("a socket 'https' was passed, but there is no ",
                                 "server.tls_certificate");
  }
  AddSocket(std::move(taken), https, admin);
  return OkStatus();
}

Status Listener::OpenTcp(const std::string& host, int port) {
  error_code error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) return base::InvalidArgument("server.host '", host, "' is no IP address");
  auto sockets = net::ListeningSocket::Tcp(address.to_string(), std::to_string(port));
  if (!sockets.ok()) {
    return base::Unavailable("cannot listen on ", host, ":", port, ": ", sockets.status().message(),
                             "; choose another server.port");
  }
  for (net::ListeningSocket& socket : *sockets)
    AddSocket(std::move(socket), tls() != nullptr, false);
  return OkStatus();
}

Status Listener::OpenUnix(const std::string& path, unsigned mode, bool admin) {
  auto socket = net::ListeningSocket::Unix(path, mode);
  if (!socket.ok())
    return base::Unavailable("cannot listen on '", path, "': ", socket.status().message());
  AddSocket(*std::move(socket), false, admin);
  return OkStatus();
}

// The configuration does not describe passed sockets, so their addresses are checked here.
Status Listener::CheckOpenAccess(const server::ReloadableConfig& reloadable) const {
  if (reloadable.needs_keys() || reloadable.config.insecure) return OkStatus();
  for (const ListenSocket& listening : sockets_) {
    const net::SocketAddress address = net::LocalAddress(listening.acceptor->socket().fd());
    if (!address.on_network() || server::IsLoopbackAddress(address.host)) continue;
    return base::InvalidArgument("on ", address.host,
                                 " whoever reaches this machine could use the model; set ",
                                 "server.api_keys_file, or server.insecure: true");
  }
  return OkStatus();
}

Result<std::function<void()>> Listener::PrepareReload(const server::ReloadableConfig& reloadable) {
  RETURN_IF_ERROR(CheckOpenAccess(reloadable));
  const bool had_tls = !service_.config().tls_certificate.empty();
  if (had_tls != !reloadable.config.tls_certificate.empty()) {
    return base::FailedPrecondition(
        "server.tls_certificate: turning TLS on or off needs a restart");
  }
  if (!had_tls) return std::function<void()>([] {});
  ASSIGN_OR_RETURN(auto tls,
                   MakeTlsContext(reloadable.config.tls_certificate, reloadable.config.tls_key));
  return std::function<void()>(
      [self = shared_from_this(), tls = std::move(tls)] { self->SetTls(tls); });
}

void Listener::Start() {
  for (const ListenSocket& listening : sockets_) {
    const net::ListeningSocket& socket = listening.acceptor->socket();
    const net::SocketAddress address = net::LocalAddress(socket.fd());
    if (!address.on_network()) {
      base::LogInfo("listening on ",
                    socket.path().empty() ? "a socket that was passed" : socket.path(),
                    listening.admin ? " (admin)" : "");
    } else {
      base::LogInfo("listening on ", listening.tls ? "https://" : "http://", address.Text(), "/");
      if (!listening.tls && !server::IsLoopbackAddress(address.host))
        base::LogWarning("without TLS whoever is on the way can read keys and texts");
    }
    listening.acceptor->Start();
  }
}

void Listener::OnAccepted(const ListenSocket& listening, int socket) {
  std::optional<StreamSocket> stream;
  try {
    stream.emplace(asio::any_io_executor(strands_.Next()));
    sockaddr_storage name{};
    socklen_t bytes = sizeof(name);
    ::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &bytes);
    stream->assign(asio::generic::stream_protocol(name.ss_family, 0), socket);
  } catch (...) {
    ::close(socket);
    throw;
  }
  Begin(listening, *std::move(stream));
}

void Listener::Begin(const ListenSocket& listening, StreamSocket socket) {
  const net::SocketAddress local = net::LocalAddress(socket.native_handle());
  const net::SocketAddress remote = net::PeerAddress(socket.native_handle());
  const bool on_network = local.on_network();
  if (on_network && !remote.on_network()) return;  // the client has disconnected
  Peer peer{.address =
                on_network ? server::NetworkOf(remote.host) : net::PeerUser(socket.native_handle()),
            .local_address = local.host,
            .on_network = on_network,
            .tls = listening.tls,
            .admin = listening.admin};
  const auto reloadable = service_.reloadable();
  const bool counted = on_network && !listening.admin;
  auto place = std::make_shared<net::ConnectionPlace>(connections_, counted ? peer.address : "");
  // The admin socket accepts connections even when the limit is reached.
  const auto entry = listening.admin
                         ? place->Enter(std::numeric_limits<int>::max(), 0)
                         : place->Enter(reloadable->config.connections_max,
                                        reloadable->config.ConnectionsMaxOf(peer.address));
  if (entry != net::ConnectionCount::Entry::kIn) {
    service_.metrics().RequestRejected("connections");
    return Reject(std::move(socket), listening.tls, entry);
  }
  const std::shared_ptr<TlsContext> tls = listening.tls ? this->tls() : nullptr;
  auto connection = std::make_shared<Connection>(std::move(socket), tls, std::move(peer));
  std::make_shared<Session>(std::move(connection), service_, router_, std::move(place))->Start();
}

// With TLS an error response would need a handshake first.
void Listener::Reject(StreamSocket socket, bool tls, net::ConnectionCount::Entry why) {
  const bool full = why == net::ConnectionCount::Entry::kFull;
  if (tls) return;
  const protocol::ApiError error{
      .http_status = full ? 503 : 429,
      .type = full ? "server_error" : "rate_limit_error",
      .code = "too_many_connections",
      .param = "",
      .message = full ? "all connections are taken (server.connections_max)"
                      : "this address has as many connections as it may have "
                        "(server.connections_per_address_max)",
      .details = {}};
  const std::string body = error.ToJson().Dump() + "\n";
  RejectConnection(
      std::move(socket),
      StrCat("HTTP/1.1 ", full ? "503 Service Unavailable" : "429 Too Many Requests",
             "\r\nRetry-After: 1\r\nContent-Type: application/json\r\nContent-Length: ",
             body.size(), "\r\nConnection: close\r\n\r\n", body),
      rejected_);
}

}  // namespace thermocline::http
