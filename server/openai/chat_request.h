// Parses the body of POST /v1/chat/completions into a Request.
#pragma once

#include <string>

#include "server/protocol/common_request.h"

namespace thermocline::openai {

using ChatRequest = protocol::CommonRequest;

// Pure; the prompt is one Conversation. Unknown fields are rejected, except kIgnoredFields. `log`
// records the fields that are read.
Result<ChatRequest> ParseChatRequest(std::string_view body,
                                     const protocol::RequestDefaults& defaults,
                                     protocol::FieldLog* log = nullptr);

}  // namespace thermocline::openai
