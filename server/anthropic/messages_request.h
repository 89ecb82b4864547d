// From the body of POST /v1/messages to a Request.
#pragma once

#include "server/protocol/common_request.h"

namespace thermocline::anthropic {

struct MessagesRequest {
  server::Asked asked;
  bool stream = false;
};

// Pure. Fields that there are not are refused by name, but for metadata, service_tier and
// cache_control, which change no answer here.
Result<MessagesRequest> ParseMessagesRequest(std::string_view body,
                                             const protocol::RequestDefaults& defaults,
                                             protocol::FieldLog* log = nullptr);

// The conversation alone: system, messages, tools. What is malformed fails `fields`.
server::Conversation ReadMessagesConversation(protocol::Fields& fields);

}  // namespace thermocline::anthropic
