// Error responses, by server::RefusalTable.
#pragma once

#include "server/core/service.h"
#include "server/http/response.h"

namespace thermocline::http {

// Adds Retry-After if a retry helps.
HttpResponse FailureResponse(const server::Service& service, const ResponseHead& head,
                             const Status& status);

// The same, and counts the request as rejected.
HttpResponse RefusalResponse(server::Service& service, const ResponseHead& head,
                             const Status& status);

}  // namespace thermocline::http
