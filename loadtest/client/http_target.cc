#include "loadtest/client/http_target.h"

#include <boost/asio/ip/tcp.hpp>

namespace thermocline::loadtest {
namespace {

Result<std::shared_ptr<asio::ssl::context>> MakeTls(const HttpOptions& options) {
  auto tls = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  error_code error;
  tls->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, error);
  if (options.ca_file.empty()) {
    tls->set_default_verify_paths(error);
    return tls;
  }
  tls->load_verify_file(options.ca_file, error);
  if (error) {
    return base::InvalidArgument("--ca-file ", options.ca_file,
                                 ": it holds no certificates: ", error.message());
  }
  return tls;
}

}  // namespace

Result<HttpTarget> ResolveTarget(const HttpOptions& options) {
  HttpTarget target{.options = options, .endpoints = {}, .tls = nullptr};
  asio::io_context io;
  asio::ip::tcp::resolver resolver(io);
  error_code error;
  const auto found = resolver.resolve(options.url.host, options.url.port, error);
  if (error) return base::Unavailable("host '", options.url.host, "': ", error.message());
  for (const auto& entry : found) target.endpoints.push_back(entry.endpoint());
  if (options.url.tls) {
    ASSIGN_OR_RETURN(target.tls, MakeTls(options));
  }
  return target;
}

std::string RequestHeader(const HttpOptions& options, std::string_view method,
                          std::string_view path, std::int64_t body_bytes) {
  std::string header = StrCat(method, " ", path, " HTTP/1.1\r\nHost: ", options.url.authority(),
                              "\r\nUser-Agent: thermocline-load\r\nAccept: */*\r\n");
  if (!options.api_key.empty()) header += StrCat("Authorization: Bearer ", options.api_key, "\r\n");
  if (body_bytes >= 0)
    header += StrCat("Content-Type: application/json\r\nContent-Length: ", body_bytes, "\r\n");
  return header + "\r\n";
}

}  // namespace thermocline::loadtest
