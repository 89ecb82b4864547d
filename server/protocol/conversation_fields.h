// Reads the conversation of a chat: messages, tools, and other variables of the chat template.
#pragma once

#include "server/core/generation_request.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

// Reads the conversation; malformed fields fail `fields`.
server::Conversation ReadConversation(Fields& fields);

// Sets the template's variables for an effort such as "low". `field` is named in errors.
void SetReasoningEffort(Fields& fields, const char* field, const std::string& effort, Json& json);

}  // namespace thermocline::protocol
