// GET /v1/models and /v1/models/{id}, which clients of two APIs ask for.
#pragma once

#include "server/core/service.h"
#include "server/http/generation_plan.h"

namespace thermocline::routes {

// In Anthropic's shape for its clients, else in OpenAI's.
http::Action Models(server::Service& service, const http::HttpRequest& request,
                    const http::ResponseHead& head);
http::Action Model(server::Service& service, const http::HttpRequest& request,
                   const http::ResponseHead& head);

}  // namespace thermocline::routes
