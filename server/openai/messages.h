// The messages of a chat, as a chat template reads them.
#pragma once

#include "server/openai/fields.h"

namespace thermocline::openai {

// {"messages": [...]}: contents are strings, "developer" is "system", the arguments of tool calls
// are values. What is malformed fails `fields`.
Json ReadMessages(Fields& fields);
// The same of a list that is not the field's own; `field` is to blame.
Json ReadMessages(Fields& fields, const Json* messages, const char* field);

}  // namespace thermocline::openai
