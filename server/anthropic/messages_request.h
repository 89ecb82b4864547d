// Parses the body of POST /v1/messages into a Request.
#pragma once

#include "server/protocol/common_request.h"

namespace thermocline::anthropic {

struct MessagesRequest {
  server::GenerationRequest generation;
  bool stream = false;
};

// Pure. Unknown fields are rejected by name, except metadata, service_tier and cache_control, which
// change no answer here.
Result<MessagesRequest> ParseMessagesRequest(std::string_view body,
                                             const protocol::RequestDefaults& defaults,
                                             protocol::FieldLog* log = nullptr);

// Reads only the conversation: system, messages, tools. Malformed input fails `fields`.
server::Conversation ReadMessagesConversation(protocol::Fields& fields);

}  // namespace thermocline::anthropic
