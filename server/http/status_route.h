// GET /v1/status: what runs, where, and how it is doing.
#pragma once

#include "server/core/service.h"
#include "server/http/response.h"

namespace thermocline::http {

HttpResponse AnswerStatus(server::Service& service, const ResponseHead& head);

}  // namespace thermocline::http
