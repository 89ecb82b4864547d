#include "server/http/listener.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>

#include "engine/base/log.h"
#include "server/http/address.h"
#include "server/http/session.h"
#include "server/http/turned_away.h"
#include "server/protocol/error.h"

namespace thermocline::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptRetry{200};

std::string Url(const AnyEndpoint& endpoint, bool tls) {
  const std::string address = AddressOf(endpoint);
  const bool ipv6 = address.find(':') != std::string::npos;
  return StrCat(tls ? "https://" : "http://", ipv6 ? "[" : "", address, ipv6 ? "]" : "", ":",
                PortOf(endpoint), "/");
}

}  // namespace

Status CheckTls(const server::ServerConfig& config) {
  if (config.tls_certificate.empty()) return OkStatus();
  return MakeTlsContext(config.tls_certificate, config.tls_key).status();
}

Status CheckSockets(const server::ServerConfig& config) {
  const std::pair<const char*, const std::string&> sockets[] = {
      {"server.unix_socket", config.unix_socket}, {"server.admin_socket", config.admin_socket}};
  for (const auto& [key, path] : sockets) {
    const Status place = path.empty() ? OkStatus() : server::SocketFile::CheckPlace(path);
    if (!place.ok()) return place.Annotate(key);
  }
  return OkStatus();
}

Result<std::shared_ptr<Listener>> Listener::Create(
    asio::io_context& io, server::Service& service, const Router& router,
    const std::vector<server::PassedSocket>& passed) {
  auto listener = std::shared_ptr<Listener>(new Listener(io, service, router));
  const auto live = service.live();
  if (!live->config.tls_certificate.empty()) {
    ASSIGN_OR_RETURN(auto tls, MakeTlsContext(live->config.tls_certificate, live->config.tls_key));
    listener->SetTls(std::move(tls));
  }
  RETURN_IF_ERROR(listener->OpenAll(passed));
  RETURN_IF_ERROR(listener->CheckStrangers(*live));
  return listener;
}

Listener::~Listener() = default;

Status Listener::OpenAll(const std::vector<server::PassedSocket>& passed) {
  const server::ServerConfig& config = service_.config();
  bool tcp_passed = false, admin_passed = false;
  for (const server::PassedSocket& socket : passed) {
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
  if (doors_.empty()) {
    return base::InvalidArgument(
        "there is nothing to listen on: set server.host, server.unix_socket or ",
        "server.admin_socket");
  }
  return OkStatus();
}

Listener::Door& Listener::AddDoor() {
  doors_.push_back(
      {.acceptor = asio::basic_socket_acceptor<Protocol>(io_), .retry = asio::steady_timer(io_)});
  return doors_.back();
}

Status Listener::TakePassed(const server::PassedSocket& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  int listening = 0;
  socklen_t listening_bytes = sizeof(listening);
  const bool usable =
      ::getsockname(socket.fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
      ::getsockopt(socket.fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &listening_bytes) == 0 &&
      listening != 0;
  if (!usable)
    return base::InvalidArgument("the socket '", socket.name, "' that was passed does not listen");
  if (socket.name == "grpc")
    return base::InvalidArgument("gRPC takes no socket that was passed; set grpc.address");
  if (socket.name == "admin" && address.ss_family != AF_UNIX)
    return base::InvalidArgument("the socket 'admin' that was passed must be a Unix socket");
  Door& door = AddDoor();
  door.admin = socket.name == "admin";
  door.tls = socket.name == "https";
  if (door.tls && tls() == nullptr) {
    return base::InvalidArgument("a socket 'https' was passed, but there is no ",
                                 "server.tls_certificate");
  }
  error_code error;
  door.acceptor.assign(Protocol(address.ss_family, 0), socket.fd, error);
  if (error) return base::Unavailable("the socket '", socket.name, "': ", error.message());
  return OkStatus();
}

Status Listener::OpenTcp(const std::string& host, int port) {
  error_code error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) return base::InvalidArgument("server.host '", host, "' is no IP address");
  const asio::ip::tcp::endpoint endpoint(address, static_cast<unsigned short>(port));
  Door& door = AddDoor();
  door.tls = tls() != nullptr;
  door.acceptor.open(endpoint.protocol(), error);
  if (!error) door.acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) door.acceptor.bind(endpoint, error);
  if (!error) door.acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return base::Unavailable("cannot listen on ", host, ":", port, ": ", error.message(),
                             "; choose another server.port");
  }
  return OkStatus();
}

Status Listener::OpenUnix(const std::string& path, unsigned mode, bool admin) {
  using Unix = asio::local::stream_protocol;
  ASSIGN_OR_RETURN(server::SocketFile file, server::SocketFile::Claim(path));
  Door& door = AddDoor();
  door.file = std::move(file);
  door.admin = admin;
  error_code error;
  door.acceptor.open(Unix(), error);
  if (!error) door.acceptor.bind(Unix::endpoint(path), error);
  if (!error) {
    door.file.NoteBound();
    // Nobody can connect before it listens.
    if (::chmod(path.c_str(), mode) != 0) error.assign(errno, boost::system::system_category());
  }
  if (!error) door.acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return base::Unavailable("cannot listen on '", path, "': ", error.message());
  return OkStatus();
}

// The configuration knows nothing of sockets that were passed.
Status Listener::CheckStrangers(const server::Live& live) const {
  if (live.needs_keys() || live.config.insecure) return OkStatus();
  for (const Door& door : doors_) {
    const auto endpoint = door.acceptor.local_endpoint();
    if (IsUnixSocket(endpoint) || server::IsLoopbackAddress(AddressOf(endpoint))) continue;
    return base::InvalidArgument("on ", AddressOf(endpoint),
                                 " whoever reaches this machine could use the model; set ",
                                 "server.api_keys_file, or server.insecure: true");
  }
  return OkStatus();
}

Result<std::function<void()>> Listener::PrepareReload(const server::Live& live) {
  RETURN_IF_ERROR(CheckStrangers(live));
  const bool had_tls = !service_.config().tls_certificate.empty();
  if (had_tls != !live.config.tls_certificate.empty()) {
    return base::FailedPrecondition(
        "server.tls_certificate: turning TLS on or off needs a restart");
  }
  if (!had_tls) return std::function<void()>([] {});
  ASSIGN_OR_RETURN(auto tls, MakeTlsContext(live.config.tls_certificate, live.config.tls_key));
  return std::function<void()>(
      [self = shared_from_this(), tls = std::move(tls)] { self->SetTls(tls); });
}

void Listener::Start() {
  for (Door& door : doors_) {
    const AnyEndpoint endpoint = door.acceptor.local_endpoint();
    door.acceptor.non_blocking(true);
    if (IsUnixSocket(endpoint)) {
      base::LogInfo("listening on ",
                    door.file.path().empty() ? "a socket that was passed" : door.file.path(),
                    door.admin ? " (admin)" : "");
    } else {
      base::LogInfo("listening on ", Url(endpoint, door.tls));
      if (!door.tls && !server::IsLoopbackAddress(AddressOf(endpoint)))
        base::LogWarning("without TLS whoever is on the way can read keys and texts");
    }
    Accept(door);
  }
}

void Listener::Accept(Door& door) {
  door.acceptor.async_wait(asio::socket_base::wait_read,
                           [self = shared_from_this(), &door](error_code error) {
                             if (!error) self->TakeNext(door);
                           });
}

// Not async_accept, which drops its handler, and the door with it, where it finds no memory for the
// connection.
void Listener::TakeNext(Door& door) {
  error_code error;
  std::optional<StreamSocket> socket;
  try {
    socket = door.acceptor.accept(asio::any_io_executor(strands_.Next()), error);
  } catch (const std::exception& thrown) {
    return AcceptLater(door, thrown.what());
  }
  const bool gone = error == asio::error::would_block || error == asio::error::connection_aborted;
  if (error && !gone) return AcceptLater(door, error.message());
  door.told = false;
  AcceptNext(door);  // first: what becomes of this connection may throw
  if (!error) OnAccepted(door, *std::move(socket));
}

void Listener::AcceptNext(Door& door) {
  try {
    Accept(door);
  } catch (const std::exception& error) {
    AcceptLater(door, error.what());
  }
}

// Out of descriptors or of memory, most likely: waits for some to come back.
void Listener::AcceptLater(Door& door, const std::string& why) {
  door.retry.expires_after(kAcceptRetry);
  door.retry.async_wait([self = shared_from_this(), &door](error_code failed) {
    if (!failed) self->AcceptNext(door);
  });
  if (!std::exchange(door.told, true)) base::LogWarning("no connection can be accepted: ", why);
}

void Listener::OnAccepted(Door& door, StreamSocket socket) {
  error_code error;
  const AnyEndpoint remote = socket.remote_endpoint(error);
  const AnyEndpoint local = error ? AnyEndpoint() : socket.local_endpoint(error);
  if (error) return;  // already gone
  const bool on_network = !IsUnixSocket(local);
  Peer peer{.address = on_network ? server::NetworkOf(AddressOf(remote))
                                  : PeerUser(socket.native_handle()),
            .local_address = AddressOf(local),
            .on_network = on_network,
            .tls = door.tls,
            .admin = door.admin};
  const auto live = service_.live();
  const bool counted = on_network && !door.admin;
  auto place = std::make_shared<ConnectionPlace>(connections_, counted ? peer.address : "");
  // The way in for the operator stays open when all others are taken.
  const auto entry = door.admin ? place->Enter(std::numeric_limits<int>::max(), 0)
                                : place->Enter(live->config.connections_max,
                                               live->config.ConnectionsMaxOf(peer.address));
  if (entry != ConnectionCount::Entry::kIn) {
    service_.metrics().RequestRejected("connections");
    return TurnAway(std::move(socket), door.tls, entry);
  }
  const std::shared_ptr<TlsContext> tls = door.tls ? this->tls() : nullptr;
  auto connection = std::make_shared<Connection>(std::move(socket), tls, std::move(peer));
  std::make_shared<Session>(std::move(connection), service_, router_, std::move(place))->Start();
}

// By TLS there is nothing to say yet.
void Listener::TurnAway(StreamSocket socket, bool tls, ConnectionCount::Entry why) {
  const bool full = why == ConnectionCount::Entry::kFull;
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
  SendAway(std::move(socket),
           StrCat("HTTP/1.1 ", full ? "503 Service Unavailable" : "429 Too Many Requests",
                  "\r\nRetry-After: 1\r\nContent-Type: application/json\r\nContent-Length: ",
                  body.size(), "\r\nConnection: close\r\n\r\n", body),
           turned_away_);
}

}  // namespace thermocline::http
