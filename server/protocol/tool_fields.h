// "tools", "tool_choice" and "parallel_tool_calls" of OpenAI's APIs.
#pragma once

#include "server/chat/tools.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

// In the shape of /v1/chat/completions, or of /v1/responses: there a function's members stand in
// the tool itself, and tools of other types, which are run by others, are left out. What is
// malformed fails `fields`.
enum class ToolShape { kNested, kFlat };
chat::ToolRequest ReadTools(Fields& fields, ToolShape shape = ToolShape::kNested);

// A tool from its function object: {"name", "description", "parameters", "strict"}. `where` is its
// place, for messages. Nothing: `fields` failed.
std::optional<chat::Tool> ReadFunction(Fields& fields, const Json& function,
                                       const std::string& where);

// Adds a tool; names come once, and there are not too many.
void AddTool(Fields& fields, chat::Tool tool, std::vector<chat::Tool>& tools);

// Checks that a tool that must be called is there, and that there is any tool if one must be
// called.
void CheckChoice(Fields& fields, const chat::ToolRequest& request);

}  // namespace thermocline::protocol
