// What a line of a chat that begins with "/" does.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace thermocline::tools {

class ChatSession;

// `line`: "/set temperature 0.7". InvalidArgument: there is no such command, or it takes something
// else; what it does may fail, too.
Status RunCommand(ChatSession& session, const std::string& line);

}  // namespace thermocline::tools
