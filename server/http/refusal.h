// Answers that refuse: the service cannot, or the model is not there.
#pragma once

#include <string>

#include "server/core/service.h"
#include "server/http/response.h"

namespace thermocline::http {

// Unavailable while there is no engine that takes new work.
Status NotReady(const server::Service& service);

// 429 and 503 with Retry-After, counted as rejected.
HttpResponse RefusalResponse(server::Service& service, const ResponseHead& head,
                             const Status& status);

// 404.
HttpResponse UnknownModel(const server::Service& service, const ResponseHead& head,
                          const std::string& name);

}  // namespace thermocline::http
