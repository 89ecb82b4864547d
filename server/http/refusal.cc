#include "server/http/refusal.h"

#include "server/core/refusal_table.h"

namespace thermocline::http {

HttpResponse FailureResponse(const server::Service& service, const ResponseHead& head,
                             const Status& status) {
  const bool wait = server::RowOf(status).retry_after;
  HttpResponse response =
      ErrorResponse(head, protocol::FromStatus(status), wait ? service.RetryAfterSeconds() : 0);
  if (status.reason() == Reason::kUnknownKey)
    response.set(boost::beast::http::field::www_authenticate, "Bearer");
  return response;
}

HttpResponse RefusalResponse(server::Service& service, const ResponseHead& head,
                             const Status& status) {
  server::CountRejection(service.metrics(), status);
  return FailureResponse(service, head, status);
}

}  // namespace thermocline::http
