// From the body of POST /v1/chat/completions to a Request.
#pragma once

#include <string>

#include "server/protocol/common_request.h"

namespace thermocline::openai {

using ChatRequest = protocol::CommonRequest;

// Pure; the prompt is one Conversation. Fields that there are not are refused, but for
// kIgnoredFields. `log` learns which fields are read.
Result<ChatRequest> ParseChatRequest(std::string_view body,
                                     const protocol::RequestDefaults& defaults,
                                     protocol::FieldLog* log = nullptr);

}  // namespace thermocline::openai
