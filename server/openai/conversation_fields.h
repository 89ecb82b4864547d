// The conversation of a chat: messages, tools, and what the chat template is told beside them.
#pragma once

#include "server/core/asked.h"
#include "server/openai/fields.h"

namespace thermocline::openai {

// What is malformed fails `fields`.
server::Conversation ReadConversation(Fields& fields);

}  // namespace thermocline::openai
