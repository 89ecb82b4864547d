// Errors in the shape of Ollama's API.
#pragma once

#include <string>

#include "server/protocol/error.h"

namespace thermocline::ollama {

// {"error": a text that begins with the field, if one is to blame}.
Json ErrorJson(const protocol::ApiError& error, const std::string& request_id);

inline constexpr protocol::ErrorShape kErrors = {.body = ErrorJson};

}  // namespace thermocline::ollama
