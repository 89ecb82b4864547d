// The grammar of an answer: reasoning, then text, calls of tools, or what the client asked the
// answer to be.
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
  bool any_arguments = false;  // of tools that are not strict: their schemas do not count
  std::optional<GrammarSpec> answer = {};  // of the text
};

// Returns the grammar; nothing: any text will do. Unimplemented: tools must be called, and the
// format has no calls. The schemas of tools that are not strict may be taken for any object.
Result<std::optional<GrammarSpec>> GrammarOfAnswer(const OutputFormat& format,
                                                   const AnswerRules& rules);

}  // namespace thermocline::chat
