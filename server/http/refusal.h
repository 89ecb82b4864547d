// Answers that refuse, by server::RefusalTable.
#pragma once

#include "server/core/service.h"
#include "server/http/response.h"

namespace thermocline::http {

// With Retry-After where trying again helps.
HttpResponse FailureResponse(const server::Service& service, const ResponseHead& head,
                             const Status& status);

// The same, counted as rejected.
HttpResponse RefusalResponse(server::Service& service, const ResponseHead& head,
                             const Status& status);

}  // namespace thermocline::http
