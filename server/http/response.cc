#include "server/http/response.h"

namespace thermocline::http {

namespace beast_http = boost::beast::http;

HttpResponse MakeResponse(const ResponseHead& head, int status, const std::string& content_type,
                          std::string body) {
  HttpResponse response(static_cast<beast_http::status>(status), head.version);
  response.set(beast_http::field::server, "thermocline");
  response.set(beast_http::field::content_type, content_type);
  response.set("x-request-id", head.request_id);
  response.set("x-content-type-options", "nosniff");
  response.keep_alive(head.keep_alive);
  response.body() = std::move(body);
  response.prepare_payload();
  return response;
}

HttpResponse JsonResponse(const ResponseHead& head, int status, const Json& json) {
  return MakeResponse(head, status, "application/json", json.Dump() + "\n");
}

HttpResponse ErrorResponse(const ResponseHead& head, const openai::ApiError& error,
                           int retry_after_s) {
  HttpResponse response = JsonResponse(head, error.http_status, error.ToJson());
  if (retry_after_s > 0) {
    response.set(beast_http::field::retry_after, std::to_string(retry_after_s));
    response.set("retry-after-ms", std::to_string(retry_after_s * 1000));
  }
  return response;
}

}  // namespace thermocline::http
