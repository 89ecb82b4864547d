// Counts the prompt tokens of a request.
#pragma once

#include "server/core/service.h"
#include "server/http/generation_plan.h"

namespace thermocline::openai {

// POST /v1/tokens/count, with the body of a chat or a completion.
http::Action CountTokens(server::Service& service, const http::HttpRequest& request,
                         const http::ResponseHead& head);
// POST /v1/responses/input_tokens, with the body of a response.
http::Action CountInput(server::Service& service, const http::HttpRequest& request,
                        const http::ResponseHead& head);

}  // namespace thermocline::openai
