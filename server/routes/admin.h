// Routes below /admin, for operators: the gate lets in who came by the admin socket or has a key
// marked admin. What changes something takes bodies of type application/json only, which no form of
// a web page can send.
#pragma once

#include "server/core/service.h"
#include "server/http/response.h"

namespace thermocline::routes {

// Figures of the predictors.
http::HttpResponse AnswerPredictors(server::Service& service, const http::HttpRequest& request,
                                    const http::ResponseHead& head);
// {"frozen": true|false}: holds their thresholds where they are, or lets the controller move them.
http::HttpResponse FreezePredictors(server::Service& service, const http::HttpRequest& request,
                                    const http::ResponseHead& head);
// The generations in progress.
http::HttpResponse AnswerRequests(server::Service& service, const http::HttpRequest& request,
                                  const http::ResponseHead& head);
// {"id": ...}: ends one of them, by its x-request-id.
http::HttpResponse CancelRequest(server::Service& service, const http::HttpRequest& request,
                                 const http::ResponseHead& head);
// As SIGHUP and SIGTERM do.
http::HttpResponse Reload(server::Service& service, const http::HttpRequest& request,
                          const http::ResponseHead& head);
http::HttpResponse Drain(server::Service& service, const http::HttpRequest& request,
                         const http::ResponseHead& head);
// {"level": "debug"}: until the next reload.
http::HttpResponse SetLogLevel(server::Service& service, const http::HttpRequest& request,
                               const http::ResponseHead& head);

}  // namespace thermocline::routes
