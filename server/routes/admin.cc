#include "server/routes/admin.h"

#include <chrono>
#include <optional>
#include <variant>

#include <boost/beast/core/string.hpp>

#include "engine/base/log.h"
#include "server/core/held_model.h"
#include "server/http/refusal.h"

namespace thermocline::routes {
namespace {

using server::Service;
namespace beast_http = boost::beast::http;

// The fraction, or null if `whole` is 0.
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
                      {"controller_recall", service.config().model.ffn.controller_recall},
                      {"side_car", stats.side_car.empty() ? Json() : Json(stats.side_car)},
                      {"predictor_bytes", stats.predictor_bytes},
                      {"layers", std::move(layers)}};
}

bool IsJson(const http::HttpRequest& request) {
  std::string_view type = request[beast_http::field::content_type];
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  return boost::beast::iequals(type, "application/json");
}

protocol::ApiError NotJson() {
  return protocol::ClientError(415, "unsupported_media_type",
                               "the Content-Type must be application/json");
}

protocol::ApiError BadValue(const char* name, const char* expected) {
  return protocol::FromStatus(base::InvalidArgument("the body must be ", expected).WithField(name));
}

// The value of the body's only member `name`; an empty body counts as {}.
std::variant<Json, protocol::ApiError> OnlyMember(const http::HttpRequest& request,
                                                  const char* name, const char* expected) {
  if (!IsJson(request)) return NotJson();
  const auto json = base::ParseJson(request.body());
  if (!json.ok()) return protocol::FromStatus(json.status());
  const bool only = json->is_object() && json->as_object().size() == 1;
  const Json* value = only ? json->Find(name) : nullptr;
  if (value == nullptr) return BadValue(name, expected);
  return *value;
}

// The error for a body that is not empty or {}; nullopt otherwise.
std::optional<protocol::ApiError> CheckEmpty(const http::HttpRequest& request) {
  if (!IsJson(request)) return NotJson();
  const auto json = base::ParseJson(request.body().empty() ? "{}" : request.body());
  if (json.ok() && json->is_object() && json->as_object().empty()) return std::nullopt;
  return protocol::FromStatus(base::InvalidArgument("the body must be empty, or {}"));
}

http::HttpResponse NotLoaded(const Service& service, const http::ResponseHead& head) {
  return http::FailureResponse(service, head, base::Unavailable("the model is not loaded"));
}

}  // namespace

http::HttpResponse AnswerPredictors(Service& service, const http::HttpRequest&,
                                    const http::ResponseHead& head) {
  if (service.engine() == nullptr) return NotLoaded(service, head);
  return http::JsonResponse(head, 200, PredictorsJson(service, service.engine()->Stats()));
}

http::HttpResponse FreezePredictors(Service& service, const http::HttpRequest& request,
                                    const http::ResponseHead& head) {
  if (service.engine() == nullptr) return NotLoaded(service, head);
  constexpr const char* kExpected = R"({"frozen": true} or {"frozen": false})";
  const auto body = OnlyMember(request, "frozen", kExpected);
  if (const auto* error = std::get_if<protocol::ApiError>(&body))
    return http::ErrorResponse(head, *error);
  const Json& frozen = std::get<Json>(body);
  if (!frozen.is_bool()) return http::ErrorResponse(head, BadValue("frozen", kExpected));
  service.engine()->FreezeController(frozen.as_bool());
  base::LogInfo("the predictors' thresholds are ", frozen.as_bool() ? "frozen" : "free",
                " (/admin/predictors)");
  return http::JsonResponse(head, 200, PredictorsJson(service, service.engine()->Stats()));
}

http::HttpResponse AnswerRequests(Service& service, const http::HttpRequest&,
                                  const http::ResponseHead& head) {
  const auto now = std::chrono::steady_clock::now();
  Json::Array requests;
  for (const auto& model : server::HoldAllOf(service)) {
    for (const auto& generation : model->Generations()) {
      const std::chrono::duration<double> age = now - generation->arrived();
      requests.push_back(Json::Object{{"id", generation->id()},
                                      {"model", model->model_name()},
                                      {"tenant", generation->tenant()},
                                      {"phase", generation->tokens() > 0 ? "decode" : "waiting"},
                                      {"age_s", age.count()},
                                      {"choices", generation->choices()},
                                      {"completion_tokens", generation->tokens()}});
    }
  }
  return http::JsonResponse(head, 200, Json::Object{{"requests", std::move(requests)}});
}

http::HttpResponse CancelRequest(Service& service, const http::HttpRequest& request,
                                 const http::ResponseHead& head) {
  constexpr const char* kExpected = R"({"id": "..."}, an x-request-id)";
  const auto body = OnlyMember(request, "id", kExpected);
  if (const auto* error = std::get_if<protocol::ApiError>(&body))
    return http::ErrorResponse(head, *error);
  const Json& id = std::get<Json>(body);
  if (!id.is_string()) return http::ErrorResponse(head, BadValue("id", kExpected));
  bool found = false;
  for (const auto& model : server::HoldAllOf(service))
    found = model->Cancel(id.as_string(), CancelCause::kApi) || found;
  if (!found) {
    return http::FailureResponse(
        service, head,
        base::NotFound("there is no such request").WithReason(Reason::kRequestNotFound));
  }
  return http::JsonResponse(head, 200, Json::Object{{"id", id}, {"cancelled", true}});
}

http::HttpResponse Reload(Service& service, const http::HttpRequest& request,
                          const http::ResponseHead& head) {
  if (const auto error = CheckEmpty(request)) return http::ErrorResponse(head, *error);
  const Status reloaded = service.control().reload();
  if (!reloaded.ok()) {
    // The operator who asked can read the error, which is in the operator's files.
    return http::ErrorResponse(head,
                               protocol::FromStatus(base::InvalidArgument(reloaded.message())));
  }
  return http::JsonResponse(head, 200, Json::Object{{"status", "reloaded"}});
}

http::HttpResponse Drain(Service& service, const http::HttpRequest& request,
                         const http::ResponseHead& head) {
  if (const auto error = CheckEmpty(request)) return http::ErrorResponse(head, *error);
  service.control().drain();
  return http::JsonResponse(head, 202, Json::Object{{"status", "draining"}});
}

http::HttpResponse SetLogLevel(Service& service, const http::HttpRequest& request,
                               const http::ResponseHead& head) {
  constexpr const char* kExpected = R"({"level": "debug|info|warning|error|off"})";
  const auto body = OnlyMember(request, "level", kExpected);
  if (const auto* error = std::get_if<protocol::ApiError>(&body))
    return http::ErrorResponse(head, *error);
  const Json& name = std::get<Json>(body);
  const auto level = base::ParseLogLevel(name.is_string() ? name.as_string() : "");
  if (!level.ok()) return http::ErrorResponse(head, BadValue("level", kExpected));
  base::ConfigureLog(*level, service.reloadable()->config.log_format == "json");
  return http::JsonResponse(head, 200, Json::Object{{"level", name}});
}

}  // namespace thermocline::routes
