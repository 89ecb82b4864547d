// Converts the messages of Anthropic's API to those of a chat.
#pragma once

#include "server/protocol/fields.h"

namespace thermocline::anthropic {

// {"messages": [...]} as from protocol::ReadMessages. Blocks become texts, tool calls and their
// results; thinking is added to its answer. Malformed input fails `fields`.
Json ReadInput(protocol::Fields& fields);

}  // namespace thermocline::anthropic
