// The conversation of a chat: messages, tools, and what the chat template is told beside them.
#pragma once

#include "server/core/asked.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

// Reads the conversation; malformed fields fail `fields`.
server::Conversation ReadConversation(Fields& fields);

// "low": what the chat template reads of it. `field` is to blame.
void SetReasoningEffort(Fields& fields, const char* field, const std::string& effort, Json& json);

}  // namespace thermocline::protocol
