// Addresses of sockets as text.
#pragma once

#include <string>

#include <boost/asio/generic/stream_protocol.hpp>

namespace thermocline::http {

using AnyEndpoint = boost::asio::generic::stream_protocol::endpoint;

bool IsUnixSocket(const AnyEndpoint& endpoint);
// "192.0.2.1" or "2001:db8::1"; IPv4 inside IPv6 as IPv4; "" for other families.
std::string AddressOf(const AnyEndpoint& endpoint);
int PortOf(const AnyEndpoint& endpoint);
// "uid:1000": who opened the other end of a Unix socket.
std::string PeerUser(int socket);

}  // namespace thermocline::http
