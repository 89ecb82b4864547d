// The text that shows a launch: variables and commands as lines for a shell, or JSON.
#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "tools/launch/agent.h"

namespace thermocline::tools {

// All that a launch starts.
struct LaunchPlan {
  Endpoint endpoint;
  std::vector<std::string> daemon;   // its command; empty = the server is there
  std::vector<Variable> variables;   // of the agent
  std::vector<std::string> command;  // the agent's, with the user's arguments
  std::string key_source;            // the text for a shell that stands for the key
};

// A word as a shell reads it: quoted where it must be.
std::string ShellWord(const std::string& word);
// Lines that a shell can run: the daemon, the variables, the program. They have no key.
std::string ShellLines(const LaunchPlan& plan);
// The same as one object: "server", "daemon" (or null), "variables", "command".
Json ToJson(const LaunchPlan& plan);

}  // namespace thermocline::tools
