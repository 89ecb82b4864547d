// From the body of POST /v1/chat/completions to a Request.
#pragma once

#include <string>
#include <variant>

#include "server/openai/common_request.h"

namespace thermocline::openai {

struct ChatRequest : CommonRequest {
  Json conversation;  // {"messages": [...]} for the chat template
};

// Pure. Fields that would change the answer and that we do not support are refused, unknown ones
// ignored. `log` learns which fields are read.
std::variant<ChatRequest, ApiError> ParseChatRequest(std::string_view body,
                                                     const RequestDefaults& defaults,
                                                     FieldLog* log = nullptr);

}  // namespace thermocline::openai
