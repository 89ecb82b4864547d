// Reads "tools", "tool_choice" and "parallel_tool_calls" of OpenAI's APIs.
#pragma once

#include "server/chat/tools.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

// kNested: the format of /v1/chat/completions. kFlat: that of /v1/responses, where a function's
// members are in the tool itself, and tools of other types, which others run, are dropped.
// Malformed input fails `fields`.
enum class ToolShape { kNested, kFlat };
chat::ToolRequest ReadTools(Fields& fields, ToolShape shape = ToolShape::kNested);

// Reads a tool from its function object: {"name", "description", "parameters", "strict"}. `where`
// is its place, for messages. nullopt: `fields` failed.
std::optional<chat::Tool> ReadFunction(Fields& fields, const Json& function,
                                       const std::string& where);

// Adds a tool; rejects duplicate names and too many tools.
void AddTool(Fields& fields, chat::Tool tool, std::vector<chat::Tool>& tools);

// Checks that a tool that must be called exists, and that there is any tool if one must be called.
void CheckChoice(Fields& fields, const chat::ToolRequest& request);

}  // namespace thermocline::protocol
