// Routes below /admin, for operators: the gate lets in who came by the admin socket or has a key
// marked admin. What changes something takes bodies of type application/json only, which no form of
// a web page can send.
#pragma once

#include "server/core/service.h"
#include "server/http/response.h"

namespace thermocline::http {

// Figures of the predictors.
HttpResponse AnswerPredictors(server::Service& service, const HttpRequest& request,
                              const ResponseHead& head);
// {"frozen": true|false}: holds their thresholds where they are, or lets the controller move them.
HttpResponse FreezePredictors(server::Service& service, const HttpRequest& request,
                              const ResponseHead& head);
// The generations in progress.
HttpResponse AnswerRequests(server::Service& service, const HttpRequest& request,
                            const ResponseHead& head);
// {"id": ...}: ends one of them, by its x-request-id.
HttpResponse CancelRequest(server::Service& service, const HttpRequest& request,
                           const ResponseHead& head);
// As SIGHUP and SIGTERM do.
HttpResponse Reload(server::Service& service, const HttpRequest& request, const ResponseHead& head);
HttpResponse Drain(server::Service& service, const HttpRequest& request, const ResponseHead& head);
// {"level": "debug"}: until the next reload.
HttpResponse SetLogLevel(server::Service& service, const HttpRequest& request,
                         const ResponseHead& head);

}  // namespace thermocline::http
