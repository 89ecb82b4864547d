#include "server/core/reloadable_config.h"

#include <sys/un.h>

#include <algorithm>

#include <boost/asio/ip/address.hpp>

#include "engine/base/bytes.h"

namespace thermocline::server {
namespace {

std::string Lower(std::string text) {
  for (char& c : text) c = base::ToLower(c);
  return text;
}

constexpr std::string_view kAnyPort = ":*";

// True for a host, or a host and a port in digits.
bool IsHostAndPort(std::string_view text) {
  const std::size_t bracket = text.rfind(']'), colon = text.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  if (!has_port) return !text.empty();
  const auto port = base::ParseNumber<int>(text.substr(colon + 1));
  return colon > 0 && port.has_value() && *port >= 0 && *port <= 65535;
}

// True for "*", for scheme://host[:port] as browsers send it, where the port may be "*", and for
// the origins of files and sandboxed pages.
bool IsOrigin(std::string_view text) {
  if (text == "*" || text == "null" || text == "file://") return true;
  if (text.ends_with(kAnyPort)) text.remove_suffix(kAnyPort.size());
  const std::size_t scheme = text.find("://");
  return scheme != std::string::npos && scheme > 0 &&
         text.find_first_of("/?# @*", scheme + 3) == std::string::npos &&
         IsHostAndPort(text.substr(scheme + 3));
}

// The origin as browsers send it: in lower case, without the port that its scheme has by default.
std::string NormalOrigin(const std::string& text) {
  std::string origin = Lower(text);
  for (const auto& [scheme, port] : {std::pair("http://", ":80"), {"https://", ":443"}})
    if (origin.starts_with(scheme) && origin.ends_with(port))
      origin.resize(origin.size() - std::string_view(port).size());
  return origin;
}

// OK for "*", a name, or an address without a port.
Status CheckHost(const std::string& text) {
  const bool ipv6 = text.starts_with('[') && text.ends_with(']');
  const auto wrong = [&text](const char* why) {
    return base::InvalidArgument("server.allowed_hosts: '", text, "' ", why);
  };
  if (text != "*" && text.find('*') != std::string::npos)
    return wrong("has a '*'; name each host, or give '*' alone, which allows any");
  if (text.find_first_of(ipv6 ? "/ @" : "/: @") != std::string::npos)
    return wrong("is no name without scheme and port");
  return OkStatus();
}

Status CheckSocketPath(const char* key, std::string_view path) {
  constexpr std::size_t kBytesMax = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() <= kBytesMax) return OkStatus();
  return base::InvalidArgument(key, ": the path of a socket has at most ", kBytesMax,
                               " bytes, and this one ", path.size());
}

// Checks "host:port", where the host may be "[::1]", or "unix:PATH".
Status CheckGrpc(const ServerConfig& config) {
  constexpr std::string_view kUnix = "unix:";
  const std::string& address = config.grpc_address;
  if (address.empty()) return OkStatus();
  if (address.starts_with(kUnix) && address.size() > kUnix.size())
    return CheckSocketPath("grpc.address", std::string_view(address).substr(kUnix.size()));
  const std::size_t colon = address.rfind(':');
  const auto port = base::ParseNumber<int>(
      colon == std::string::npos ? "" : std::string_view(address).substr(colon + 1));
  if (!port.has_value() || *port < 0 || *port > 65535 || colon == 0)
    return base::InvalidArgument("grpc.address: '", address,
                                 "' is neither host:port nor unix:PATH");
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (IsLoopbackAddress(host)) return OkStatus();
  if (config.api_keys_file.empty() && !config.insecure) {
    return base::InvalidArgument(
        "grpc.address: on '", host,
        "' whoever reaches this machine could use the model; set server.api_keys_file, or ",
        "server.insecure: true if that is wanted");
  }
  if (config.grpc_insecure_http2) return OkStatus();
  return base::InvalidArgument(
      "grpc.address: on '", host,
      "' any host that reaches this machine could fill its memory, with or without a key: gRPC's "
      "library ",
      "does not bound streams that are reset at once nor CONTINUATION frames; listen on 127.0.0.1 ",
      "behind a proxy that bounds them, or set grpc.insecure_http2: true if all who reach it are ",
      "trusted");
}

Status CheckServer(const ServerConfig& config) {
  if (config.tls_certificate.empty() != config.tls_key.empty())
    return base::InvalidArgument("server.tls_certificate and server.tls_key come together");
  boost::system::error_code error;
  boost::asio::ip::make_address(config.host, error);
  if (error && !config.host.empty() && config.host != "localhost")
    return base::InvalidArgument("server.host: '", config.host, "' is no IP address");
  if (!config.host.empty() && !IsLoopbackAddress(config.host) && config.api_keys_file.empty() &&
      !config.insecure) {
    return base::InvalidArgument(
        "server.host: on '", config.host,
        "' whoever reaches this machine could use the model; set server.api_keys_file, or ",
        "server.insecure: true if that is wanted");
  }
  RETURN_IF_ERROR(CheckSocketPath("server.unix_socket", config.unix_socket));
  RETURN_IF_ERROR(CheckSocketPath("server.admin_socket", config.admin_socket));
  return CheckGrpc(config);
}

}  // namespace

bool OriginMatches(const std::string& allowed, const std::string& origin) {
  if (allowed == origin) return true;
  if (!allowed.ends_with(kAnyPort)) return false;
  const std::string_view host = std::string_view(allowed).substr(0, allowed.size() - 2);
  if (!origin.starts_with(host)) return false;
  const std::string_view port = std::string_view(origin).substr(host.size());
  return port.empty() ||
         (port.size() > 1 && port[0] == ':' &&
          std::all_of(port.begin() + 1, port.end(), [](char c) { return c >= '0' && c <= '9'; }));
}

std::vector<std::string> Loosened(const ReloadableConfig& before, const ReloadableConfig& after) {
  std::vector<std::string> out;
  const auto added = [&out](const char* what, const std::vector<std::string>& from,
                            const std::vector<std::string>& to) {
    for (const std::string& each : to)
      if (std::find(from.begin(), from.end(), each) == from.end())
        out.push_back(StrCat(what, " ", each));
  };
  if (after.config.insecure && !before.config.insecure) out.push_back("server.insecure");
  if (after.config.pull && !before.config.pull) out.push_back("server.pull");
  if (before.config.metrics_require_key && !after.config.metrics_require_key)
    out.push_back("metrics.require_key");
  added("host", before.allowed_hosts, after.allowed_hosts);
  added("origin", before.allowed_origins, after.allowed_origins);
  for (const std::string& name : after.keys.Beyond(before.keys))
    out.push_back(StrCat("key of ", name));
  return out;
}

Result<std::shared_ptr<const ReloadableConfig>> MakeReloadableConfig(const ServerConfig& config) {
  RETURN_IF_ERROR(CheckServer(config));
  auto reloadable = std::make_shared<ReloadableConfig>();
  reloadable->config = config;
  if (!config.api_keys_file.empty()) {
    auto keys = ApiKeys::Load(config.api_keys_file);
    if (!keys.ok()) {
      return base::InvalidArgument("server.api_keys_file: ", keys.status().message());
    }
    reloadable->keys = *std::move(keys);
  }
  for (const std::string& host : SplitList(config.allowed_hosts)) {
    RETURN_IF_ERROR(CheckHost(host));
    reloadable->allowed_hosts.push_back(Lower(host));
  }
  for (const std::string& origin : SplitList(config.allowed_origins)) {
    if (!IsOrigin(origin)) {
      return base::InvalidArgument("server.allowed_origins: '", origin,
                                   "' is no origin like https://example.org or http://host:8080");
    }
    reloadable->allowed_origins.push_back(NormalOrigin(origin));
  }
  return std::shared_ptr<const ReloadableConfig>(std::move(reloadable));
}

}  // namespace thermocline::server
