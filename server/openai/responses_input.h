// The "input" of /v1/responses as the messages of a chat.
#pragma once

#include "server/protocol/fields.h"

namespace thermocline::openai {

// {"messages": [...]} as ReadMessages gives it: `instructions` and messages of the system become
// one in front; calls, their outputs and reasoning are joined to the answers they belong to. What
// is malformed fails `fields`.
Json ReadInput(protocol::Fields& fields);

}  // namespace thermocline::openai
