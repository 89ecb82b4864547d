// Errors in the format of Anthropic's API.
#pragma once

#include <string>

#include "server/protocol/error.h"

namespace thermocline::anthropic {

// {"type": "error", "error": {"type", "message"}, "request_id"}; `request_id` is "" within a
// stream.
Json ErrorJson(const protocol::ApiError& error, const std::string& request_id);

inline constexpr protocol::ErrorShape kErrors = {
    .body = ErrorJson, .id_header = "request-id", .event = "event: error\n"};

}  // namespace thermocline::anthropic
