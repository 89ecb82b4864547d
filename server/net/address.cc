#include "server/net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "engine/base/strings.h"

namespace thermocline::net {
namespace {

using NameOf = int (*)(int socket, sockaddr* name, socklen_t* bytes);

SocketAddress AddressOf(int socket, NameOf name_of) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  if (name_of(socket, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return {};
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(name);
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(name);
  char text[INET6_ADDRSTRLEN] = "";
  if (name.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return {.host = text, .port = ntohs(v4.sin_port)};
  }
  if (name.ss_family != AF_INET6) return {};
  const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
  ::inet_ntop(mapped ? AF_INET : AF_INET6, &v6.sin6_addr.s6_addr[mapped ? 12 : 0], text,
              sizeof(text));
  return {.host = text, .port = ntohs(v6.sin6_port)};
}

}  // namespace

std::string SocketAddress::Text() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return StrCat(ipv6 ? "[" : "", host, ipv6 ? "]" : "", ":", port);
}

SocketAddress LocalAddress(int socket) { return AddressOf(socket, ::getsockname); }

SocketAddress PeerAddress(int socket) { return AddressOf(socket, ::getpeername); }

std::string PeerUser(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return "unix";
  return StrCat("uid:", credentials.uid);
}

}  // namespace thermocline::net
