// The messages of a chat, as a chat template reads them.
#pragma once

#include "server/protocol/fields.h"

namespace thermocline::protocol {

// {"messages": [...]}: contents are strings, "developer" is "system", the arguments of tool calls
// are values. What is malformed fails `fields`.
Json ReadMessages(Fields& fields);
// The same of a list that is not the field's own; `field` is to blame.
Json ReadMessages(Fields& fields, const Json* messages, const char* field);

// Refuses members of `message`, which stands at `where` of `field`, that would change the answer if
// they were read, and notes those that are not known.
void CheckMembers(Fields& fields, const Json& message, const char* field, const std::string& where);

// Claude Code begins its system text with a line whose checksum differs in every request, which
// would make every prompt a new one. Removes that line, and notes it as left out.
// Source: the same is done by vLLM (pull request 36829) and ik_llama.cpp (1436).
void DropBillingLine(Fields& fields, std::string& system_text);

}  // namespace thermocline::protocol
