// Which request is answered how. Everything but generation is answered at once.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "server/http/response.h"
#include "server/openai/chat_response.h"
#include "server/service.h"

namespace thermocline::http {

// A generation to be started by the session: what to submit, and how to answer.
struct GenerationPlan {
  Request request;
  openai::AnswerHead answer;
  bool stream = false;
};

struct Routed {
  std::string route;  // the route's template, for metrics: never a raw path
  std::variant<HttpResponse, GenerationPlan> action;
};

// Pure but for reading the service. Never throws.
Routed RouteRequest(server::Service& service, const HttpRequest& request, const ResponseHead& head);

// 429 and 503 with Retry-After, counted as rejected.
HttpResponse RefusalResponse(server::Service& service, const ResponseHead& head,
                             const Status& status);

}  // namespace thermocline::http
