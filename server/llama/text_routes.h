// Text and tokens: what a client wants to know before, or instead of, a generation.
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
// The vocabulary's control tokens and the chat template, as vLLM gives them.
http::Action TokenizerInfo(server::Service& service, const http::HttpRequest& request,
                           const http::ResponseHead& head);
// POST /apply-template: {"messages"}.
http::Action ApplyTemplate(server::Service& service, const http::HttpRequest& request,
                           const http::ResponseHead& head);

}  // namespace thermocline::llama
