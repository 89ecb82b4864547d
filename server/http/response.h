// Building whole HTTP responses.
#pragma once

#include <string>

#include <boost/beast/http.hpp>

#include "engine/base/json.h"
#include "server/openai/error.h"

namespace thermocline::http {

using HttpRequest = boost::beast::http::request<boost::beast::http::string_body>;
using HttpResponse = boost::beast::http::response<boost::beast::http::string_body>;

// What every answer to one request carries.
struct ResponseHead {
  unsigned version = 11;
  bool keep_alive = true;
  std::string request_id;
};

HttpResponse MakeResponse(const ResponseHead& head, int status, const std::string& content_type,
                          std::string body);
HttpResponse JsonResponse(const ResponseHead& head, int status, const Json& json);
// `retry_after_s` > 0 adds Retry-After.
HttpResponse ErrorResponse(const ResponseHead& head, const openai::ApiError& error,
                           int retry_after_s = 0);

}  // namespace thermocline::http
