// Operators' routes below /admin. Access needs the admin socket or a key marked admin. Routes that
// change state accept only bodies of type application/json, which a web page's form cannot send.
#pragma once

#include "server/core/service.h"
#include "server/http/response.h"

namespace thermocline::routes {

// The predictors' statistics.
http::HttpResponse AnswerPredictors(server::Service& service, const http::HttpRequest& request,
                                    const http::ResponseHead& head);
// {"frozen": true|false}: freezes the thresholds, or lets the controller adjust them.
http::HttpResponse FreezePredictors(server::Service& service, const http::HttpRequest& request,
                                    const http::ResponseHead& head);
// The generations in progress.
http::HttpResponse AnswerRequests(server::Service& service, const http::HttpRequest& request,
                                  const http::ResponseHead& head);
// {"id": ...}: cancels a generation by its x-request-id.
http::HttpResponse CancelRequest(server::Service& service, const http::HttpRequest& request,
                                 const http::ResponseHead& head);
// The same as SIGHUP and SIGTERM.
http::HttpResponse Reload(server::Service& service, const http::HttpRequest& request,
                          const http::ResponseHead& head);
http::HttpResponse Drain(server::Service& service, const http::HttpRequest& request,
                         const http::ResponseHead& head);
// {"level": "debug"}: sets the log level until the next reload.
http::HttpResponse SetLogLevel(server::Service& service, const http::HttpRequest& request,
                               const http::ResponseHead& head);

}  // namespace thermocline::routes
