// Errors in the shape that a route's clients read.
#pragma once

#include <string>
#include <string_view>

#include "server/protocol/error.h"

namespace thermocline::http {

enum class ErrorStyle { kOpenAi, kAnthropic, kOllama };

// By the path of a request; where several APIs share it, by whether the request has Anthropic's
// header anthropic-version.
ErrorStyle ErrorStyleOf(std::string_view path, bool has_anthropic_version);

Json ErrorJson(ErrorStyle style, const protocol::ApiError& error, const std::string& request_id);

}  // namespace thermocline::http
