// The arguments of a call as rules of a grammar, where a template writes them one by one.
#pragma once

#include <string>

#include "server/chat/rule_list.h"
#include "server/chat/tools.h"

namespace thermocline::chat {

// Returns the body of the rule for the tool's arguments: keys in the schema's order, those not
// required being optional, and behind them keys without a name. Adds the rules it needs, whose
// names end with `index`, that of the tool. Requires: the format's calls are tagged. Errors as
// FormsOfArguments, of a tool that is strict; another one has what its `properties` say.
Result<std::string> WriteTagged(const TaggedArguments& tagged, const Tool& tool,
                                const Json& parameters, int index, RuleList& rules);

}  // namespace thermocline::chat
