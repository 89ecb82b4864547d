// The messages of Anthropic's API as those of a chat.
#pragma once

#include "server/openai/fields.h"

namespace thermocline::anthropic {

// {"messages": [...]} as openai::ReadMessages gives it: blocks become texts, calls of tools and
// their results; thinking goes with the answer it belongs to. What is malformed fails `fields`.
Json ReadInput(openai::Fields& fields);

}  // namespace thermocline::anthropic
