// The messages of Anthropic's API as those of a chat.
#pragma once

#include "server/protocol/fields.h"

namespace thermocline::anthropic {

// {"messages": [...]} as protocol::ReadMessages gives it: blocks become texts, calls of tools and
// their results; thinking goes with the answer it belongs to. What is malformed fails `fields`.
Json ReadInput(protocol::Fields& fields);

}  // namespace thermocline::anthropic
