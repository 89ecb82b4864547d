// Builds complete HTTP responses.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/beast/http.hpp>

#include "engine/api/request.h"
#include "engine/base/json.h"
#include "server/core/model_rights.h"
#include "server/protocol/error.h"

namespace thermocline::http {

using HttpRequest = boost::beast::http::request<boost::beast::http::string_body>;
using HttpResponse = boost::beast::http::response<boost::beast::http::string_body>;

// The data that every answer to one request needs.
struct ResponseHead {
  unsigned version = 11;
  bool keep_alive = true;
  std::string request_id;
  std::chrono::steady_clock::time_point arrived = {};  // the first byte of the request
  std::string traceparent = {};                        // the client's trace; "" = none
  std::string cors_origin = {};                        // Access-Control-Allow-Origin; "" = none
  std::string tenant = {};                             // the caller's tenant
  int priority_max = kPriorityMax;                     // the highest priority it may request
  bool admin = false;                                  // may see other clients' requests
  server::ModelRights models = {};
  std::string route = {};  // the template of its path, for metrics
  const protocol::ErrorShape* errors = &protocol::kOpenAiErrors;
  std::string ignored_fields = {};  // value of x-thermocline-ignored; "" = none
};

inline constexpr const char* kIgnoredFieldsHeader = "x-thermocline-ignored";

// The value of that header: the names, separated by commas, without bytes that are invalid in
// headers.
std::string IgnoredFieldsValue(const std::vector<std::string>& names);

// Names and values of the headers for `head`, besides Server.
std::vector<std::pair<std::string_view, std::string>> HeadersOf(const ResponseHead& head);

HttpResponse MakeResponse(const ResponseHead& head, int status, const std::string& content_type,
                          std::string body);
HttpResponse JsonResponse(const ResponseHead& head, int status, const Json& json);
// `retry_after_s` > 0 adds Retry-After.
HttpResponse ErrorResponse(const ResponseHead& head, const protocol::ApiError& error,
                           int retry_after_s = 0);

}  // namespace thermocline::http
