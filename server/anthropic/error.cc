#include "server/anthropic/error.h"

#include "engine/base/strings.h"

namespace thermocline::anthropic {
namespace {

const char* TypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

Json ErrorJson(const openai::ApiError& error, const std::string& request_id) {
  constexpr std::size_t kMessageBytesMax = 2048;
  const std::string where = error.param.empty() ? "" : error.param + ": ";
  Json::Object out{
      {"type", "error"},
      {"error", Json::Object{{"type", TypeOf(error.http_status)},
                             {"message", base::Shorten(where + error.message, kMessageBytesMax)}}}};
  if (!request_id.empty()) out.emplace_back("request_id", request_id);
  return out;
}

}  // namespace thermocline::anthropic
