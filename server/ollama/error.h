// Errors in the format of Ollama's API.
#pragma once

#include <string>

#include "server/protocol/error.h"

namespace thermocline::ollama {

// {"error": text}; the text begins with the field at fault, if there is one.
Json ErrorJson(const protocol::ApiError& error, const std::string& request_id);

inline constexpr protocol::ErrorShape kErrors = {.body = ErrorJson};

}  // namespace thermocline::ollama
