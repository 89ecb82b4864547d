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
  std::string path = {};  // begins with '/' or is empty; no '/' at its end

  // "host:port", with brackets around an IPv6 address: for headers and gRPC.
  std::string authority() const;
  std::string origin() const;  // "http://host:port"
};

// "http://127.0.0.1:8080", "https://example.com/v1", "localhost:8080" (http). InvalidArgument for
// anything else: other schemes, user names, queries, control characters.
Result<Url> ParseUrl(std::string_view text);

// Returns the path of requests: "/v1/" and `route` behind the URL's path, which may end in "/v1"
// already.
std::string ApiPath(const Url& url, std::string_view route);
// Beside the API, as /metrics is: behind the URL's path without "/v1".
std::string RootPath(const Url& url, std::string_view route);

}  // namespace thermocline::loadtest
