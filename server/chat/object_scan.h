// Reads JSON objects that may be calls: member by member before they are complete, and as a whole.
#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "server/chat/call_cursor.h"
#include "server/chat/call_rules.h"
#include "server/chat/tools.h"

namespace thermocline::chat {

// The result for an object that arrives. `rule`: the one that it breaks if it is no call.
struct ObjectHead {
  const Tool* tool = nullptr;  // by its name, once read
  int objects = 0;             // objects around the arguments
  bool begun = false;          // the cursor is at the opening brace of the arguments
  CallRule rule = CallRule::kMembers;
};

// Scans the object at the cursor, to its end or, if `stop_at_arguments`, to its arguments if they
// are an object and behind the name.
Taken ScanObject(CallCursor& cursor, const std::vector<Tool>& tools, bool stop_at_arguments,
                 ObjectHead& head);

// The call that a complete object is; tool = nullptr: none, because of `rule`.
struct ObjectCall {
  const Tool* tool = nullptr;
  std::string arguments = {};  // JSON
  CallRule rule = CallRule::kNone;
};
ObjectCall ReadCallObject(const Json& object, const std::vector<Tool>& tools);

// Takes one JSON value without checking it.
Taken SkipJsonValue(CallCursor& cursor);
// Takes a JSON string; `out` is its text between the quotes.
Taken TakeJsonString(CallCursor& cursor, std::string_view& out);
// True if the object at the cursor may be arguments of `tool`: it has no member yet, or its first
// one is not a keyword of a schema that a model repeated. kMore: the first key is not complete.
Taken BeginsArguments(const CallCursor& cursor, const Tool& tool);

}  // namespace thermocline::chat
