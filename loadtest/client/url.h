// The address of the server under test.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace thermocline::loadtest {

struct Url {
  bool tls = false;
  std::string host = {};  // without brackets
  std::string port = {};  // digits
  std::string path = {};  // "" or begins with '/'; no trailing '/'

  // "host:port", with brackets around an IPv6 address, for headers and gRPC.
  std::string authority() const;
  std::string origin() const;  // "http://host:port"
};

// Parses "http://127.0.0.1:8080", "https://example.com/v1", or "localhost:8080" (http).
// InvalidArgument for anything else: other schemes, user names, queries, control characters.
Result<Url> ParseUrl(std::string_view text);

// Returns the path of an API request: "/v1/" and `route` after the URL's path, which may already
// end in "/v1".
std::string ApiPath(const Url& url, std::string_view route);
// The path of a route outside the API, such as /metrics: after the URL's path without "/v1".
std::string RootPath(const Url& url, std::string_view route);

}  // namespace thermocline::loadtest
