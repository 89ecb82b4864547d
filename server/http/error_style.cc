#include "server/http/error_style.h"

#include "engine/base/strings.h"
#include "server/anthropic/error.h"

namespace thermocline::http {

ErrorStyle ErrorStyleOf(std::string_view path, bool has_anthropic_version) {
  if (path == "/v1/messages" || path.starts_with("/v1/messages/")) return ErrorStyle::kAnthropic;
  if (path.starts_with("/api/")) return ErrorStyle::kOllama;
  return has_anthropic_version ? ErrorStyle::kAnthropic : ErrorStyle::kOpenAi;
}

Json ErrorJson(ErrorStyle style, const protocol::ApiError& error, const std::string& request_id) {
  if (style == ErrorStyle::kAnthropic) return anthropic::ErrorJson(error, request_id);
  if (style == ErrorStyle::kOpenAi) return error.ToJson();
  constexpr std::size_t kMessageBytesMax = 2048;
  const std::string where = error.param.empty() ? "" : error.param + ": ";
  return Json::Object{{"error", base::Shorten(where + error.message, kMessageBytesMax)}};
}

}  // namespace thermocline::http
