#include "server/net/listening_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "server/net/address.h"

namespace thermocline::net {
namespace {

// Returns a listening socket, or -1 with errno.
int Listen(const sockaddr* name, socklen_t bytes) {
  const int family = name->sa_family;
  const int socket = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (socket < 0) return -1;
  if (family != AF_UNIX) ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (family == AF_INET6) {
    const bool both =
        IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(name)->sin6_addr);
    const int alone = both ? 0 : 1;
    ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &alone, sizeof(alone));
  }
  if (::bind(socket, name, bytes) == 0 && ::listen(socket, SOMAXCONN) == 0) return socket;
  const int error = errno;
  ::close(socket);
  errno = error;
  return -1;
}

void SetPort(sockaddr* name, int port) {
  const auto number = htons(static_cast<std::uint16_t>(port));
  (name->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(name)->sin6_port
                               : reinterpret_cast<sockaddr_in*>(name)->sin_port) = number;
}

}  // namespace

Result<std::vector<ListeningSocket>> ListeningSocket::Tcp(const std::string& host,
                                                          const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  const int failed = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (failed != 0) return base::Unavailable(::gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  std::vector<ListeningSocket> sockets;
  int error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (!sockets.empty()) SetPort(at->ai_addr, LocalAddress(sockets.front().fd()).port);
    const int socket = Listen(at->ai_addr, at->ai_addrlen);
    if (socket >= 0) {
      sockets.push_back(ListeningSocket(socket, {}));
    } else if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) {
      return base::Unavailable(std::strerror(errno), "; is it free?");
    } else {
      error = errno;
    }
  }
  if (sockets.empty())
    return base::Unavailable(std::strerror(error), "; is it an address of this machine?");
  return sockets;
}

Result<ListeningSocket> ListeningSocket::Unix(const std::string& path, mode_t mode) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) return base::Unavailable("the path is too long");
  std::memcpy(name.sun_path, path.data(), path.size());
  ASSIGN_OR_RETURN(SocketFile file, SocketFile::Claim(path));
  const mode_t before = ::umask(0777 & ~mode);
  const int socket = Listen(reinterpret_cast<sockaddr*>(&name), sizeof(name));
  const int error = errno;
  ::umask(before);
  if (socket < 0) return base::Unavailable(std::strerror(error));
  file.NoteBound();
  return ListeningSocket(socket, std::move(file));
}

Result<ListeningSocket> ListeningSocket::Passed(const PassedSocket& socket) {
  ListeningSocket taken(socket.fd, {});
  int listening = 0;
  socklen_t bytes = sizeof(listening);
  const bool usable =
      ::getsockopt(socket.fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) == 0 && listening != 0;
  if (!usable)
    return base::InvalidArgument("the socket '", socket.name, "' that was passed does not listen");
  return taken;
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), file_(std::move(other.file_)) {}

ListeningSocket& ListeningSocket::operator=(ListeningSocket&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(file_, other.file_);
  return *this;
}

ListeningSocket::~ListeningSocket() {
  if (fd_ >= 0) ::close(fd_);
}

bool ListeningSocket::is_unix() const {
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  return ::getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &bytes) == 0 &&
         name.ss_family == AF_UNIX;
}

}  // namespace thermocline::net
