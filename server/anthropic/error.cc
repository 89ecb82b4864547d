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

// Claude Code compacts its conversation if a message begins with Anthropic's text for a prompt that
// is too long.
std::string MessageOf(const protocol::ApiError& error) {
  const Json details = error.details;
  const Json *tokens = details.Find("n_prompt_tokens"), *context = details.Find("n_ctx");
  if (error.code == "context_length_exceeded" && tokens != nullptr && context != nullptr)
    return StrCat("prompt is too long: ", tokens->Dump(), " tokens > ", context->Dump(),
                  " maximum");
  return StrCat(error.param, error.param.empty() ? "" : ": ", error.message);
}

}  // namespace

Json ErrorJson(const protocol::ApiError& error, const std::string& request_id) {
  constexpr std::size_t kMessageBytesMax = 2048;
  Json::Object inner{{"type", TypeOf(error.http_status)},
                     {"message", base::Shorten(MessageOf(error), kMessageBytesMax)}};
  // With this error the SDK's tool runner continues without threads.
  if (error.param == "thread")
    inner.emplace_back("details", Json::Object{{"error_code", "thread_unsupported_request"},
                                               {"unsupported", Json::Array{"thread"}}});
  Json::Object out{{"type", "error"}, {"error", std::move(inner)}};
  if (!request_id.empty()) out.emplace_back("request_id", request_id);
  return out;
}

}  // namespace thermocline::anthropic
