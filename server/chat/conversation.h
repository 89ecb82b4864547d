// A conversation as clients send it, and as a model's chat template wants it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "server/chat/message_part.h"
#include "server/chat/output_format.h"
#include "server/chat/tools.h"

namespace thermocline::chat {

// A member of a call's "function" beside its arguments: their text as the client wrote it. Numbers
// and escapes have several forms, and a prompt is the same only if theirs is.
inline constexpr const char* kArgumentsText = "arguments_text";

struct Conversation {
  // {"messages": [...]} in the shape of OpenAI's API, where the arguments of calls are objects, and
  // whatever else the template shall read.
  Json json = {};
  ToolRequest tools = {};
  // The last message is an answer that is begun: it goes on from there.
  bool continues_last = false;
};

// The calls of an earlier answer in the format's words.
std::string TextOfCalls(const CallFormat& format, const std::vector<ToolCall>& calls);

// Returns the template's input: tools and results where it knows no such messages become text, ids
// and arguments take the form it wants. The last message is left out if the conversation continues
// it.
Json ForTemplate(const OutputFormat& format, const Conversation& conversation);

// The same with the begun answer as the last message, a mark behind its text, and without a prompt
// for another answer. Requires: continues_last.
Json ForTemplateMarked(const OutputFormat& format, const Conversation& conversation);
// Returns where that mark begins; nothing if the template does not show the answer as it is.
std::optional<std::size_t> FindMark(const std::string& rendered);

// The text that an answer which continues the last message begins with. Requires: continues_last.
std::string BegunText(const OutputFormat& format, const Conversation& conversation);

}  // namespace thermocline::chat
