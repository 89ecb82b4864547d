#include "server/grpc/connection_gate.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/base/log.h"

namespace thermocline::rpc {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr int kBacklog = 128;
constexpr int kRetryMs = 200;  // where there is no descriptor for a connection

std::string_view WithoutBrackets(std::string_view host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

int PortOf(int socket) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &bytes);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
}

// The socket listens, or is closed: -1.
int Listen(int family, const sockaddr* name, socklen_t bytes) {
  const int socket = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (socket < 0) return -1;
  if (family != AF_UNIX) ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (family == AF_INET6) {
    const int both =
        IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(name)->sin6_addr);
    const int alone = both ? 0 : 1;
    ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &alone, sizeof(alone));
  }
  if (::bind(socket, name, bytes) == 0 && ::listen(socket, kBacklog) == 0) return socket;
  const int error = errno;
  ::close(socket);
  errno = error;
  return -1;
}

}  // namespace

Result<std::unique_ptr<ConnectionGate>> ConnectionGate::Open(const std::string& address,
                                                             mode_t mode) {
  std::unique_ptr<ConnectionGate> gate(new ConnectionGate());
  gate->address_ = address;
  gate->wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const std::size_t colon = address.rfind(':');
  const Status listening =
      address.starts_with(kUnix)
          ? gate->ListenUnix(address.substr(kUnix.size()), mode)
          : gate->ListenTcp(
                std::string(WithoutBrackets(std::string_view(address).substr(0, colon))),
                address.substr(colon + 1));
  if (!listening.ok() || gate->wake_ < 0) {
    return base::Unavailable("grpc.address: cannot listen on '", address,
                             "': ", listening.ok() ? std::strerror(errno) : listening.message());
  }
  if (gate->file_.path().empty())
    gate->address_ = StrCat(address.substr(0, colon), ":", PortOf(gate->listeners_.front()));
  return gate;
}

ConnectionGate::~ConnectionGate() {
  Close();
  if (wake_ >= 0) ::close(wake_);
}

// A name may have several addresses, "localhost" two; they get the same port.
Status ConnectionGate::ListenTcp(const std::string& host, const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  const int failed = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (failed != 0) return base::Unavailable(::gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  int error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (!listeners_.empty()) {
      const auto same = htons(static_cast<std::uint16_t>(PortOf(listeners_.front())));
      (at->ai_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(at->ai_addr)->sin6_port
                                 : reinterpret_cast<sockaddr_in*>(at->ai_addr)->sin_port) = same;
    }
    const int socket = Listen(at->ai_family, at->ai_addr, at->ai_addrlen);
    if (socket >= 0) {
      listeners_.push_back(socket);
    } else if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) {
      return base::Unavailable(std::strerror(errno), "; is it free?");
    } else {
      error = errno;
    }
  }
  return listeners_.empty() ? base::Unavailable(std::strerror(error), "; is it this machine's?")
                            : OkStatus();
}

// Gives way to the file of a process that was killed, not to one that is served.
Status ConnectionGate::ListenUnix(const std::string& path, mode_t mode) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) return base::Unavailable("the path is too long");
  std::memcpy(name.sun_path, path.data(), path.size());
  ASSIGN_OR_RETURN(file_, server::SocketFile::Claim(path));
  const mode_t before = ::umask(0777 & ~mode);
  const int socket = Listen(AF_UNIX, reinterpret_cast<sockaddr*>(&name), sizeof(name));
  ::umask(before);
  if (socket < 0) return base::Unavailable(std::strerror(errno));
  listeners_.push_back(socket);
  file_.NoteBound();
  return OkStatus();
}

void ConnectionGate::Start(server::Service& service, ConnectionCredit& credit,
                           std::unique_ptr<Acceptor> acceptor) {
  service_ = &service;
  open_ = std::make_unique<OpenConnections>(service, credit);
  acceptor_ = std::move(acceptor);
  thread_ = std::thread([this] { AcceptAll(); });
  ::pthread_setname_np(thread_.native_handle(), "grpc-accept");
}

void ConnectionGate::Close() {
  const std::uint64_t one = 1;
  if (thread_.joinable()) {
    while (::write(wake_, &one, sizeof(one)) < 0 && errno == EINTR) continue;
    thread_.join();
  }
  for (const int socket : listeners_) ::close(socket);
  listeners_.clear();
}

void ConnectionGate::AcceptAll() {
  std::vector<pollfd> waits{{.fd = wake_, .events = POLLIN, .revents = 0}};
  for (const int socket : listeners_)
    waits.push_back({.fd = socket, .events = POLLIN, .revents = 0});
  for (bool full = false;;) {
    // Without room or a descriptor, only for the end, and a moment.
    const int look_ms = open_->Look();
    const bool waits_for_room = full || !open_->HasRoomForUnproven();
    const int wait_ms = waits_for_room && look_ms < 0 ? kRetryMs : look_ms;
    if (::poll(waits.data(), waits_for_room ? 1 : waits.size(), wait_ms) < 0) continue;
    if (waits[0].revents != 0) return;
    if (waits_for_room && !full) continue;
    bool failed = false;
    for (std::size_t i = 1; i < waits.size(); ++i)
      if (full || waits[i].revents != 0) failed = !AcceptOne(waits[i].fd) || failed;
    full = failed;
  }
}

bool ConnectionGate::AcceptOne(int listener) {
  const int fd = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    const bool failed = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (failed && !std::exchange(told_, true))
      base::LogWarning("gRPC cannot accept connections for now: ", std::strerror(errno));
    return !failed;
  }
  told_ = false;
  try {
    if (open_->Admit(fd)) {
      const int on = 1;
      if (file_.path().empty()) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      Acceptor::NewConnectionParameters connection;
      connection.listener_fd = listener;
      connection.fd = fd;
      acceptor_->HandleNewConnection(&connection);
      return true;
    }
    service_->metrics().RequestRejected("connections");
  } catch (const std::bad_alloc&) {
    base::LogWarning("gRPC: no memory for a connection");
  }
  ::close(fd);
  return true;
}

}  // namespace thermocline::rpc
