// GET over HTTP and HTTPS, on libcurl: proxies, certificates and HTTP/2 are its work. Redirects are
// followed here, so that a token is sent to one origin alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/status.h"

namespace thermocline::tools {

struct HttpResponse {
  long status = 0;
  std::map<std::string, std::string> headers = {};  // names in lower case
  std::string url = {};                             // the address that answered
  std::string redirect = {};                        // the address it redirects to; "" = none

  // The header's value; "" if absent.
  std::string Header(const std::string& name) const;
};

struct HttpRequest {
  std::string url;
  std::string token = {};  // bearer; sent to the origin (scheme, host, port) of `url` alone
  std::vector<std::string> headers = {};  // "Name: value"
  int seconds_max = 0;                    // for the whole answer; 0 = as long as bytes arrive
};

// Called with each piece of the body of a 200 or 206; an error ends the request with that error.
using BodyHandler = std::function<Status(const HttpResponse&, std::span<const std::byte>)>;

// Returns any response that is not a redirect, whatever its status. Unavailable: the connection
// failed or broke, or 30 s passed without a byte; it may be tried again. FailedPrecondition: a
// redirect that is not followed, a certificate that is not trusted, an address that is not one.
Result<HttpResponse> HttpGet(const HttpRequest& request, const BodyHandler& on_body);

// Repeats `attempt` up to three times, after 2 and 4 s, or as long as the server's Retry-After
// says, while its error is Unavailable. An error with the number "retry_after_s" tells the delay.
// `advance` returns the bytes written so far: each MiB more begins the count again.
Status WithRetries(const std::string& what, const std::function<Status()>& attempt,
                   const std::function<std::int64_t()>& advance);

// Gets a JSON text of at most 16 MiB, with retries. `response` receives status and headers; a
// status other than 200 is null and no error, except 408, 429 and 5xx.
Result<Json> GetJson(const HttpRequest& request, HttpResponse& response);
// OK, or the error of a status that is worth another try: Unavailable with its delay.
Status CheckTransient(const HttpResponse& response);

// `path` for an address: every byte that is not a letter, digit or one of "-._~/" is escaped.
std::string EscapePath(const std::string& path);

}  // namespace thermocline::tools
