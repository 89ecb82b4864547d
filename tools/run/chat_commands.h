// The commands of a chat, which are lines that begin with "/".
#pragma once

#include <string>

#include "engine/base/status.h"

namespace thermocline::tools {

class ChatSession;

// `line`: "/set temperature 0.7". InvalidArgument: an unknown command or wrong arguments; errors of
// the command itself.
Status RunCommand(ChatSession& session, const std::string& line);

}  // namespace thermocline::tools
