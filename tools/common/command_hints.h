// Hints for people who type a command or an option that does not exist: a typing error, or a name
// that another program has for it.
#pragma once

#include <string>
#include <vector>

namespace thermocline::tools {

// Return a hint such as "did you mean --threads?", or "" if nothing is near. `known`: the names
// that exist, options with their dashes.
std::string HintForCommand(const std::string& name, const std::vector<std::string>& known);
std::string HintForOption(const std::string& name, const std::vector<std::string>& known);
// For a command that passes arguments behind "--" to another program.
std::string HintForPassedOption(const std::string& name, const std::vector<std::string>& known);

}  // namespace thermocline::tools
