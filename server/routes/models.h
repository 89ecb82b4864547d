// GET /v1/models and /v1/models/{id}, for clients of two APIs.
#pragma once

#include "server/core/service.h"
#include "server/http/generation_plan.h"

namespace thermocline::routes {

// Anthropic's clients get its format, others OpenAI's.
http::Action Models(server::Service& service, const http::HttpRequest& request,
                    const http::ResponseHead& head);
http::Action Model(server::Service& service, const http::HttpRequest& request,
                   const http::ResponseHead& head);

}  // namespace thermocline::routes
