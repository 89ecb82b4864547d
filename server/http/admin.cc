#include "server/http/admin.h"

#include <optional>
#include <variant>

#include <boost/beast/core/string.hpp>

#include "engine/base/log.h"
#include "server/openai/fields.h"

namespace thermocline::http {
namespace {

using server::Service;
namespace beast_http = boost::beast::http;

// Null where there is nothing to divide by.
Json Share(double part, double whole) { return whole > 0 ? Json(part / whole) : Json(); }

Json LayerJson(std::size_t index, const FfnLayerStats& s) {
  const auto d = [](std::int64_t value) { return static_cast<double>(value); };
  const double neurons = d(s.tp + s.fp + s.fn + s.tn);
  return Json::Object{{"layer", index},
                      {"mode", FfnModeName(s.mode)},
                      {"tokens", s.tokens},
                      {"audited_tokens", s.audited_tokens},
                      {"active_share", Share(d(s.tp + s.fn), neurons)},
                      {"predicted_share", Share(d(s.tp + s.fp), neurons)},
                      {"recall", Share(d(s.tp), d(s.tp + s.fn))},
                      {"precision", Share(d(s.tp), d(s.tp + s.fp))},
                      {"missed_mass_share", Share(s.missed_mass, s.total_mass)},
                      {"bytes_saved_share", Share(d(s.dense_bytes - s.bytes), d(s.dense_bytes))},
                      {"shift", s.controlled ? Json(s.shift) : Json()},
                      {"controller_recall", s.controlled ? Json(s.recall) : Json()},
                      {"moves", s.controlled ? Json(s.moves) : Json()}};
}

Json PredictorsJson(const Service& service, const EngineStats& stats) {
  Json::Array layers;
  for (std::size_t l = 0; l < stats.ffn.size(); ++l) layers.push_back(LayerJson(l, stats.ffn[l]));
  return Json::Object{{"frozen", !stats.ffn.empty() && stats.ffn[0].frozen},
                      {"controller_recall", service.config().ffn.controller_recall},
                      {"side_car", stats.side_car.empty() ? Json() : Json(stats.side_car)},
                      {"predictor_bytes", stats.predictor_bytes},
                      {"layers", std::move(layers)}};
}

// "127.0.0.1:8080", "localhost", "[::1]:8080": names that no other site's page can make its own, as
// it could with a name whose address it changes while it is open.
bool IsLoopbackHost(std::string_view host) {
  const std::size_t end = host.starts_with('[') ? host.find(']') + 1 : host.find(':');
  const std::string_view name = host.substr(0, end);
  return name == "127.0.0.1" || name == "[::1]" || boost::beast::iequals(name, "localhost");
}

// "http://127.0.0.1:8080" beside Host "127.0.0.1:8080". Browsers send Origin with every POST and
// with what a page of another site asks for; other clients send none.
bool OfAnotherOrigin(const HttpRequest& request) {
  const std::string_view host = request[beast_http::field::host];
  if (!IsLoopbackHost(host)) return true;
  const std::string_view origin = request[beast_http::field::origin];
  if (request.find(beast_http::field::origin) == request.end()) return false;
  const std::size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos) return true;  // also "null"
  return !boost::beast::iequals(origin.substr(scheme + 3), host);
}

bool IsJson(const HttpRequest& request) {
  std::string_view type = request[beast_http::field::content_type];
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  return boost::beast::iequals(type, "application/json");
}

// Why a request gets no answer; nullopt if it does.
std::optional<HttpResponse> Refuse(Service& service, const HttpRequest& request,
                                   const ResponseHead& head) {
  if (OfAnotherOrigin(request)) {
    return ErrorResponse(
        head, openai::ClientError(403, "permission_denied",
                                  "the Host or Origin of the request is not this server on "
                                  "the loopback interface"));
  }
  if (service.engine() == nullptr) {
    return ErrorResponse(head, openai::FromStatus(base::Unavailable("the model is not loaded")),
                         service.RetryAfterSeconds());
  }
  return std::nullopt;
}

std::variant<bool, openai::ApiError> ParseFreeze(std::string_view body) {
  const auto json = base::ParseJson(body);
  if (!json.ok()) return openai::FromStatus(json.status());
  openai::Fields fields(*json);
  if (!json->is_object() || json->as_object().size() != 1 || fields.Find("frozen") == nullptr)
    fields.Fail("frozen", "the body must be {\"frozen\": true} or {\"frozen\": false}");
  const bool frozen = fields.Bool("frozen", false);
  if (!fields.ok()) return fields.error();
  return frozen;
}

}  // namespace

HttpResponse AnswerPredictors(Service& service, const HttpRequest& request,
                              const ResponseHead& head) {
  if (auto refusal = Refuse(service, request, head)) return *std::move(refusal);
  return JsonResponse(head, 200, PredictorsJson(service, service.engine()->Stats()));
}

HttpResponse FreezePredictors(Service& service, const HttpRequest& request,
                              const ResponseHead& head) {
  if (auto refusal = Refuse(service, request, head)) return *std::move(refusal);
  if (!IsJson(request)) {
    return ErrorResponse(head, openai::ClientError(415, "unsupported_media_type",
                                                   "the Content-Type must be application/json"));
  }
  const auto frozen = ParseFreeze(request.body());
  if (const auto* error = std::get_if<openai::ApiError>(&frozen))
    return ErrorResponse(head, *error);
  service.engine()->FreezeController(std::get<bool>(frozen));
  base::LogInfo("the predictors' thresholds are ", std::get<bool>(frozen) ? "frozen" : "free",
                " (/admin/predictors)");
  return JsonResponse(head, 200, PredictorsJson(service, service.engine()->Stats()));
}

}  // namespace thermocline::http
