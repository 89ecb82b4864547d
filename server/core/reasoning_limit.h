// The limit of an answer's reasoning: asked for in tokens, by an effort, or set by the operator.
#pragma once

#include <memory>
#include <optional>

#include "engine/sampling/thought_budget.h"
#include "server/chat/conversation.h"
#include "server/chat/output_format.h"
#include "server/core/server_config.h"

namespace thermocline::server {

// The most tokens of reasoning in an answer; nullopt: any number. The request's own number is used
// first. An effort counts if the template does not read it: none is 0, minimal 1/64 of the context,
// low 1/32, medium 1/16, and more is no limit. A request that turns reasoning off has 0 if the
// template cannot do it.
std::optional<int> ReasoningBudget(const chat::Conversation& conversation,
                                   const chat::OutputFormat& format, int context_length,
                                   const ServerConfig& config);

// The place where the answer's reasoning begins, and its possible ends.
struct ReasoningPlace {
  bool in_reasoning = false;  // the prompt ends within it
  bool may_call = false;      // calls may follow it
  std::string message = {};   // stands before the closing mark if the limit ends it
};

// The limit for the sampler; null: the model's format has no marks of reasoning. Borrows
// `tokenizer`. Requires: tokens_max >= 0.
std::shared_ptr<const sampling::ThoughtLimit> MakeThoughtLimit(const chat::OutputFormat& format,
                                                               const text::Tokenizer& tokenizer,
                                                               int tokens_max,
                                                               const ReasoningPlace& place);

}  // namespace thermocline::server
