// Converts the "input" of /v1/responses to the messages of a chat.
#pragma once

#include "server/protocol/fields.h"

namespace thermocline::openai {

// {"messages": [...]} as from ReadMessages. `instructions` and system messages become one message
// at the front; calls, their outputs and reasoning are joined to their answers. Malformed input
// fails `fields`.
Json ReadInput(protocol::Fields& fields);

}  // namespace thermocline::openai
