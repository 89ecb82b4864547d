// Routes that tokenize and detokenize text, and that render chat templates.
#pragma once

#include "server/core/service.h"
#include "server/http/generation_plan.h"

namespace thermocline::llama {

// POST /tokenize: {"content" | "prompt" | "text", "add_special", "parse_special", "with_pieces"},
// or vLLM's {"messages", "tools", "add_generation_prompt"}.
http::Action Tokenize(server::Service& service, const http::HttpRequest& request,
                      const http::ResponseHead& head);
// POST /detokenize: {"tokens"}.
http::Action Detokenize(server::Service& service, const http::HttpRequest& request,
                        const http::ResponseHead& head);
// The vocabulary's control tokens and the chat template, in vLLM's format.
http::Action TokenizerInfo(server::Service& service, const http::HttpRequest& request,
                           const http::ResponseHead& head);
// POST /apply-template: {"messages"}.
http::Action ApplyTemplate(server::Service& service, const http::HttpRequest& request,
                           const http::ResponseHead& head);

}  // namespace thermocline::llama
