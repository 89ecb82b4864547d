// A conversation, and its conversion for a model's chat template.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "server/chat/message_part.h"
#include "server/chat/output_format.h"
#include "server/chat/tools.h"

namespace thermocline::chat {

// A member of a call's "function" that holds the arguments as the client wrote them. Numbers and
// escapes have several spellings, and only the same spelling gives the same prompt.
inline constexpr const char* kArgumentsText = "arguments_text";

struct Conversation {
  // {"messages": [...]} in the form of OpenAI's API, except that arguments of calls are objects,
  // and the template's other variables.
  Json json = {};
  ToolRequest tools = {};
  // The last message is an unfinished answer, which the model continues.
  bool continues_last = false;
  // The most tokens of reasoning; -1 = any number; nullopt = the request does not say.
  std::optional<int> reasoning_budget = {};
  // The text that ends reasoning of so many tokens, before the closing mark; nullopt = the
  // server's.
  std::optional<std::string> reasoning_message = {};
};

// The calls of a message in the form of Conversation::json.
std::vector<ToolCall> CallsOf(const Json& message);

// The calls of an earlier answer in the model's format.
std::string TextOfCalls(const CallFormat& format, const std::vector<ToolCall>& calls);

// Returns the template's input. Tools and results become text if the template does not support
// them; ids and arguments get the form that it accepts. The last message is left out if the model
// continues it. `keep_reasoning`: a template that can keep the reasoning of earlier answers does,
// unless the conversation says otherwise.
Json ForTemplate(const OutputFormat& format, const Conversation& conversation,
                 bool keep_reasoning = false);

// The same with the unfinished answer as the last message, a mark after its text, and no prompt for
// another answer. Requires: continues_last.
Json ForTemplateMarked(const OutputFormat& format, const Conversation& conversation,
                       bool keep_reasoning = false);
// Returns the mark's position, or nullopt if the template changes the answer.
std::optional<std::size_t> FindMark(const std::string& rendered);

// The unfinished answer's text in the model's format. Requires: continues_last.
std::string BegunText(const OutputFormat& format, const Conversation& conversation);

}  // namespace thermocline::chat
