// A resolved server, with all data that connections need.
#pragma once

#include <memory>
#include <string>

#include "loadtest/client/wire.h"

namespace thermocline::loadtest {

struct HttpOptions {
  Url url = {};
  std::string api_key = {};
  std::string ca_file = {};  // replaces the system's certificate authorities
  bool verify = true;
};

struct HttpTarget {
  HttpOptions options;
  Wire::Endpoints endpoints;
  std::shared_ptr<asio::ssl::context>
      tls;  // shared, since connections outlive the client; nullptr without TLS

  WireOptions wire_options() const {
    return {.tls = tls.get(), .verify = options.verify, .host = options.url.host};
  }
};

// Unavailable: the host's name has no address. InvalidArgument: the file of authorities is invalid.
Result<HttpTarget> ResolveTarget(const HttpOptions& options);

// The header of a request, with its empty line. `body_bytes` below 0: the request has no body.
std::string RequestHeader(const HttpOptions& options, std::string_view method,
                          std::string_view path, std::int64_t body_bytes);

}  // namespace thermocline::loadtest
