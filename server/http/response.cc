#include "server/http/response.h"

namespace thermocline::http {

namespace beast_http = boost::beast::http;

std::vector<std::pair<std::string_view, std::string>> HeadersOf(const ResponseHead& head) {
  std::vector<std::pair<std::string_view, std::string>> headers = {
      {"x-request-id", head.request_id}};
  if (head.errors->id_header != nullptr)
    headers.emplace_back(head.errors->id_header, head.request_id);
  if (!head.ignored_fields.empty()) headers.emplace_back(kIgnoredFieldsHeader, head.ignored_fields);
  if (!head.traceparent.empty()) headers.emplace_back("traceparent", head.traceparent);
  if (head.cors_origin.empty()) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", head.cors_origin);
  headers.emplace_back("Access-Control-Expose-Headers",
                       "X-Request-Id, Retry-After, Retry-After-Ms, X-Should-Retry, Traceparent, "
                       "X-Thermocline-Ignored");
  if (head.cors_origin != "*") headers.emplace_back("Vary", "Origin");
  return headers;
}

std::string IgnoredFieldsValue(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) {
    out += out.empty() ? "" : ", ";
    for (const char c : name) out.push_back(c > ' ' && c <= '~' && c != ',' ? c : '?');
  }
  return out;
}

HttpResponse MakeResponse(const ResponseHead& head, int status, const std::string& content_type,
                          std::string body) {
  HttpResponse response(static_cast<beast_http::status>(status), head.version);
  response.set(beast_http::field::server, "thermocline");
  response.set(beast_http::field::content_type, content_type);
  for (const auto& [name, value] : HeadersOf(head)) response.set(name, value);
  response.set("x-content-type-options", "nosniff");
  response.keep_alive(head.keep_alive);
  response.body() = std::move(body);
  response.prepare_payload();
  return response;
}

HttpResponse JsonResponse(const ResponseHead& head, int status, const Json& json) {
  return MakeResponse(head, status, "application/json", json.Dump() + "\n");
}

HttpResponse ErrorResponse(const ResponseHead& head, const protocol::ApiError& error,
                           int retry_after_s) {
  HttpResponse response =
      JsonResponse(head, error.http_status, head.errors->body(error, head.request_id));
  // OpenAI's clients retry after any 5xx. After these errors that would double the work without
  // success.
  const bool in_vain =
      error.http_status == 500 || error.http_status == 504 || error.code == "cancelled";
  if (in_vain) response.set("x-should-retry", "false");
  if (retry_after_s > 0) {
    response.set(beast_http::field::retry_after, std::to_string(retry_after_s));
    response.set("retry-after-ms", std::to_string(retry_after_s * 1000));
  }
  return response;
}

}  // namespace thermocline::http
