// POST /v1/chat/completions and /v1/completions: from a body to a generation.
#pragma once

#include "server/http/generation_plan.h"
#include "server/service.h"

namespace thermocline::http {

Action PlanChat(server::Service& service, const HttpRequest& request, const ResponseHead& head);
Action PlanCompletion(server::Service& service, const HttpRequest& request,
                      const ResponseHead& head);

}  // namespace thermocline::http
