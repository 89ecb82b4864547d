// GET /v1/status: the model, its devices, and its current statistics.
#pragma once

#include "server/core/service.h"
#include "server/http/response.h"

namespace thermocline::routes {

http::HttpResponse AnswerStatus(server::Service& service, const http::ResponseHead& head);

}  // namespace thermocline::routes
