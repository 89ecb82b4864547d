// Prompts as clients write them, made into tokens.
#pragma once

#include <variant>
#include <vector>

#include "server/core/service.h"
#include "server/openai/completion_request.h"

namespace thermocline::http {

// Both refuse what does not fit the context (code context_length_exceeded, both numbers
// given). Requires: the engine is there.

struct EncodedPrompt {
  std::vector<int> tokens;  // at least one
  bool bos_added = false;   // the first is not in the text
};
using PromptOrError = std::variant<EncodedPrompt, openai::ApiError>;

// A chat by the model's template.
PromptOrError ChatPrompt(server::Service& service, const Json& conversation);
// A raw text: control tokens in it are read as such.
PromptOrError RawPrompt(server::Service& service, const openai::Prompt& prompt);
}  // namespace thermocline::http
