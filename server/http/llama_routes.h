// Routes that llama-server has beside OpenAI's: /completion, /infill, /props, /slots, /health.
#pragma once

#include "server/core/service.h"
#include "server/http/generation_plan.h"

namespace thermocline::http {

Action LlamaCompletion(server::Service& service, const HttpRequest& request,
                       const ResponseHead& head);
Action LlamaInfill(server::Service& service, const HttpRequest& request, const ResponseHead& head);
Action LlamaProperties(server::Service& service, const HttpRequest& request,
                       const ResponseHead& head);
// ?fail_on_no_slot=1: 503 where every sequence is taken.
Action LlamaSlots(server::Service& service, const HttpRequest& request, const ResponseHead& head);
Action LlamaHealth(server::Service& service, const HttpRequest& request, const ResponseHead& head);

}  // namespace thermocline::http
