#include "server/http/address.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include <boost/asio/ip/tcp.hpp>

#include "engine/base/strings.h"

namespace thermocline::http {
namespace {

namespace asio = boost::asio;

asio::ip::tcp::endpoint ToTcp(const AnyEndpoint& endpoint) {
  asio::ip::tcp::endpoint tcp;
  const int family = endpoint.data()->sa_family;
  if ((family == AF_INET || family == AF_INET6) && endpoint.size() <= tcp.capacity()) {
    std::memcpy(tcp.data(), endpoint.data(), endpoint.size());
    tcp.resize(endpoint.size());
  }
  return tcp;
}

}  // namespace

bool IsUnixSocket(const AnyEndpoint& endpoint) { return endpoint.data()->sa_family == AF_UNIX; }

std::string AddressOf(const AnyEndpoint& endpoint) {
  const int family = endpoint.data()->sa_family;
  if (family != AF_INET && family != AF_INET6) return "";
  const asio::ip::address address = ToTcp(endpoint).address();
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  return address.to_string();
}

int PortOf(const AnyEndpoint& endpoint) { return ToTcp(endpoint).port(); }

std::string PeerUser(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return "unix";
  return StrCat("uid:", credentials.uid);
}

}  // namespace thermocline::http
