// Grammar rules for a call's arguments, for templates that write them one by one.
#pragma once

#include <string>

#include "server/chat/rule_list.h"
#include "server/chat/tools.h"

namespace thermocline::chat {

// Returns the body of the rule for the tool's arguments: keys in the schema's order, optional
// unless required, then keys without a name. Adds the rules it needs, whose names end with the
// tool's `index`. Requires: the format's calls are tagged. Errors as FormsOfArguments, for strict
// tools; other tools fall back to their `properties`.
Result<std::string> WriteTagged(const TaggedArguments& tagged, const Tool& tool, int index,
                                RuleList& rules);

}  // namespace thermocline::chat
