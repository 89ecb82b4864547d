// Parses calls of functions as Python writes them, with literals as arguments. Names, operators and
// comprehensions are rejected: nothing is evaluated.
#pragma once

#include "engine/base/json.h"
#include "server/chat/call_cursor.h"
#include "server/chat/tools.h"

namespace thermocline::chat {

// Takes a literal of Python or JSON: a string, number, True, None, true, null, list, tuple or
// dictionary with strings as keys. At the end of an answer missing brackets are added, quotes
// never.
Taken TakePythonLiteral(CallCursor& cursor, Json& out);

// Takes the arguments of a call of `tool` from behind its "(" to behind its ")", as an object.
// Arguments have names; one without is allowed if the tool has one parameter, or if it is a
// dictionary of all arguments.
Taken TakePythonArguments(CallCursor& cursor, const Tool& tool, Json& out);

}  // namespace thermocline::chat
