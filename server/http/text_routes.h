// Text and tokens: what a client wants to know before, or instead of, a generation.
#pragma once

#include "server/core/service.h"
#include "server/http/generation_plan.h"

namespace thermocline::http {

// POST /tokenize: {"content" | "prompt" | "text", "add_special", "parse_special", "with_pieces"},
// or vLLM's {"messages", "tools", "add_generation_prompt"}.
Action Tokenize(server::Service& service, const HttpRequest& request, const ResponseHead& head);
// POST /detokenize: {"tokens"}.
// The vocabulary's control tokens and the chat template, as vLLM gives them.
Action TokenizerInfo(server::Service& service, const HttpRequest& request,
                     const ResponseHead& head);
Action Detokenize(server::Service& service, const HttpRequest& request, const ResponseHead& head);
// POST /apply-template: {"messages"}.
Action ApplyTemplate(server::Service& service, const HttpRequest& request,
                     const ResponseHead& head);
// POST /v1/tokens/count: the body of a chat or of a completion.
// Of what /v1/messages would read.
Action CountMessages(server::Service& service, const HttpRequest& request,
                     const ResponseHead& head);
// Of what /v1/responses would read.
Action CountInput(server::Service& service, const HttpRequest& request, const ResponseHead& head);
Action CountTokens(server::Service& service, const HttpRequest& request, const ResponseHead& head);

}  // namespace thermocline::http
