// /admin/predictors: figures of the predictors, and freezing the controller that moves their
// thresholds. There only with server.admin; without a password, so for loopback.
#pragma once

#include "server/http/response.h"
#include "server/service.h"

namespace thermocline::http {

// Both refuse requests that a page of another origin sent (403).
HttpResponse AnswerPredictors(server::Service& service, const HttpRequest& request,
                              const ResponseHead& head);
// Body {"frozen": true|false}, of type application/json, which no form of another site can send.
HttpResponse FreezePredictors(server::Service& service, const HttpRequest& request,
                              const ResponseHead& head);

}  // namespace thermocline::http
