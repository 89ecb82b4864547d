// Reads the messages of a chat in the form that chat templates need.
#pragma once

#include "server/protocol/fields.h"

namespace thermocline::protocol {

// {"messages": [...]}: contents are strings, "developer" becomes "system", arguments of tool calls
// are values. Malformed input fails `fields`.
Json ReadMessages(Fields& fields);
// The same for a given list; `field` is named in errors.
Json ReadMessages(Fields& fields, const Json* messages, const char* field);

// Rejects members of `message` that should change the answer but are not supported, and reports
// unknown ones. `where`: the message's place in `field`.
void CheckMembers(Fields& fields, const Json& message, const char* field, const std::string& where);

// Claude Code's system text begins with a line whose checksum differs in every request, so that no
// prompt would be in the prefix cache. Removes the line and reports it as left out. Source: vLLM
// (pull request 36829) and ik_llama.cpp (1436) do the same.
void DropBillingLine(Fields& fields, std::string& system_text);

}  // namespace thermocline::protocol
