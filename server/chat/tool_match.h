// Compares names and arguments that a model wrote with the tools of its request.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/chat/tools.h"

namespace thermocline::chat {

inline constexpr std::size_t kToolNameBytesMax = 160;  // with the parts that FindTool leaves out

// The tool with that name, byte for byte; a prefix "functions." or "default_api." and a suffix ":N"
// are left out if there is no such tool otherwise. nullptr: none.
const Tool* FindTool(std::string_view name, const std::vector<Tool>& tools);

// The names of required parameters.
std::vector<std::string> RequiredOf(const Tool& tool);
// True if the schema lists a parameter of that name.
bool HasParameter(const Tool& tool, std::string_view name);
// The name of the only parameter; "" if there are none or several.
std::string OnlyParameter(const Tool& tool);
// True if the object `arguments` has all required parameters and no unlisted ones.
bool FitsSchema(const Tool& tool, const Json& arguments);

// The value of a parameter that is written as raw text between tags, without one line break at each
// end: text if the schema says string; otherwise JSON if it parses, else text.
Json TaggedValue(const Tool& tool, const std::string& key, std::string_view raw);

}  // namespace thermocline::chat
