// POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings and /v1/rerank: from a
// body to a generation.
#pragma once

#include "server/core/service.h"
#include "server/http/generation_plan.h"

namespace thermocline::http {

Action PlanChat(server::Service& service, const HttpRequest& request, const ResponseHead& head);
Action PlanCompletion(server::Service& service, const HttpRequest& request,
                      const ResponseHead& head);

Action PlanResponses(server::Service& service, const HttpRequest& request,
                     const ResponseHead& head);

// Of Anthropic's API.
Action PlanMessages(server::Service& service, const HttpRequest& request, const ResponseHead& head);
Action PlanEmbeddings(server::Service& service, const HttpRequest& request,
                      const ResponseHead& head);
// llama-server's /embedding and /embeddings.
Action PlanLlamaEmbeddings(server::Service& service, const HttpRequest& request,
                           const ResponseHead& head);
Action PlanRerank(server::Service& service, const HttpRequest& request, const ResponseHead& head);

}  // namespace thermocline::http
