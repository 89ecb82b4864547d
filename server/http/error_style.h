// Errors in the shape that a route's clients read.
#pragma once

#include <string>
#include <string_view>

#include "server/openai/error.h"

namespace thermocline::http {

enum class ErrorStyle { kOpenAi, kAnthropic, kOllama };

// By the path of the request.
ErrorStyle ErrorStyleOf(std::string_view path);

Json ErrorJson(ErrorStyle style, const openai::ApiError& error, const std::string& request_id);

}  // namespace thermocline::http
