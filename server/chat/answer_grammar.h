// The grammar of an answer: reasoning, then text, tool calls, or the format that the client
// requested.
#pragma once

#include <optional>

#include "engine/api/grammar_spec.h"
#include "server/chat/output_format.h"
#include "server/chat/tools.h"

namespace thermocline::chat {

struct AnswerRules {
  bool in_reasoning = false;  // the prompt ends within reasoning
  bool may_reason = false;    // reasoning may come first
  bool continues = false;     // the prompt ends within the answer's text
  ToolRequest tools = {};
  bool any_arguments = false;              // of tools that are not strict; ignores their schemas
  std::optional<GrammarSpec> answer = {};  // the requested format of the text
};

// Returns the grammar, or nullopt if any text is allowed. Unimplemented: a call is required, but
// the format has none. Schemas of tools that are not strict may be replaced by any object.
Result<std::optional<GrammarSpec>> GrammarOfAnswer(const OutputFormat& format,
                                                   const AnswerRules& rules);

}  // namespace thermocline::chat
