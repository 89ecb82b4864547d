// The agents that `thermocline launch` can start, and the set-up of each for a server. A new agent
// is a row of the table in agent_table.cc, with its line in docs/agents.md and its test.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace thermocline::tools {

// A server and its model, as an agent addresses them.
struct Endpoint {
  std::string url;           // "http://127.0.0.1:8080", without a '/' or "/v1" at the end
  std::string model;         // a name that the server accepts
  std::int64_t context = 0;  // tokens; 0 = unknown
  bool keyed = false;        // true: the server has got a key, kApiKeyMark stands for it
};

struct Variable {
  std::string name, value;  // the value may be kApiKeyMark
};

// The difference between an agent that is started by hand and one that uses the endpoint.
struct AgentSetup {
  std::vector<Variable> variables;
  std::vector<std::string> arguments;  // in front of those that the user gives
};

struct Agent {
  const char* name;          // on the command line
  const char* title;         // in messages
  const char* program;       // searched in PATH
  const char* install;       // a command that installs it
  const char* first_prompt;  // its length in tokens, as measured; "" = not measured
  int context_min;           // tokens: its first prompt and room for some work
  AgentSetup (*set_up)(const Endpoint& endpoint);
};

std::span<const Agent> Agents();
// Requires: an agent has this name.
const Agent& FindAgent(const std::string& name);

// A value that stands for the server's key, so that a table, a dry run and a terminal never hold
// it.
inline constexpr const char* kApiKeyMark = "\x01key";

}  // namespace thermocline::tools
