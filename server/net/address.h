// Socket addresses as text.
#pragma once

#include <string>

namespace thermocline::net {

struct SocketAddress {
  // "192.0.2.1" or "2001:db8::1"; IPv4 inside IPv6 as IPv4; "" for other families.
  std::string host;
  int port = 0;

  bool on_network() const { return !host.empty(); }
  // "192.0.2.1:80" or "[2001:db8::1]:80". Requires: on_network().
  std::string Text() const;
};

// The addresses of the two ends of a socket. Empty if it is not open or not connected.
SocketAddress LocalAddress(int socket);
SocketAddress PeerAddress(int socket);

// The user at the other end of a Unix socket, such as "uid:1000".
std::string PeerUser(int socket);

}  // namespace thermocline::net
