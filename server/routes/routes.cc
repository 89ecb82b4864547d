#include "server/routes/routes.h"

#include "engine/base/strings.h"
#include "server/anthropic/routes.h"
#include "server/core/held_model.h"
#include "server/http/refusal.h"
#include "server/llama/routes.h"
#include "server/ollama/routes.h"
#include "server/openai/routes.h"
#include "server/routes/admin.h"
#include "server/routes/api_description.h"
#include "server/routes/models.h"
#include "server/routes/status_route.h"
#include "server/web/page.h"

namespace thermocline::routes {
namespace {

using http::Action;
using http::HttpRequest;
using http::HttpResponse;
using http::ResponseHead;
using server::Service;
namespace beast_http = boost::beast::http;

Action Page(Service&, const HttpRequest&, const ResponseHead& head) {
  HttpResponse response =
      http::MakeResponse(head, 200, "text/html; charset=utf-8", std::string(web::kPage));
  // The page never makes markup from text; trusted types make the browser enforce it.
  response.set("content-security-policy",
               StrCat("default-src 'none'; connect-src 'self'; img-src data:; style-src '",
                      web::kPageStyleHash, "'; script-src '", web::kPageScriptHash,
                      "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                      "require-trusted-types-for 'script'; trusted-types 'none'"));
  response.set("referrer-policy", "no-referrer");
  response.set(beast_http::field::cache_control, "no-cache");  // the page changes with the version
  return response;
}

Action Live(Service&, const HttpRequest&, const ResponseHead& head) {
  return http::JsonResponse(head, 200, Json::Object{{"status", "live"}});
}

Action Ready(Service& service, const HttpRequest&, const ResponseHead& head) {
  // With several models one that sleeps, or cannot be loaded now, does not make the daemon unready.
  const bool several = server::IsOneOfSeveral(service);
  const Status ready = several ? service.models()->Readiness() : service.Readiness();
  if (!ready.ok()) return http::FailureResponse(service, head, ready);
  Json::Object answer{{"status", "ready"}};
  if (head.models.Allow(service.own_names())) answer.emplace_back("model", service.model_name());
  if (several) {
    Json::Object states;
    for (const auto& each : server::HoldAllOf(service, head.models))
      states.emplace_back(each->model_name(), server::ServiceStateName(each->state()));
    answer.emplace_back("models", std::move(states));
  }
  return http::JsonResponse(head, 200, std::move(answer));
}

Action ExposeMetrics(Service& service, const HttpRequest&, const ResponseHead& head) {
  const bool all = head.admin || !service.reloadable()->needs_keys();
  const auto reader = all ? server::MetricReader::kOperator : server::MetricReader::kClient;
  // Each has some 20 KB of series. Of many, those that nobody has used have none.
  constexpr std::size_t kModelsMax = 64;
  std::vector<server::MetricsOfModel> models;
  const auto held = server::HoldAllOf(service);
  for (const auto& each : held) {
    const Engine* engine = each->engine();
    if (held.size() > kModelsMax && !each->was_loaded()) continue;
    EngineStats stats;
    if (engine != nullptr) stats = engine->Stats();
    models.emplace_back(each->model_name(),
                        each->metrics().Collect(each->state(), engine != nullptr ? &stats : nullptr,
                                                each->model_name(), reader));
  }
  return http::MakeResponse(head, 200, "text/plain; version=0.0.4; charset=utf-8",
                            server::ExposeTogether(std::move(models)));
}

Action Description(Service&, const HttpRequest&, const ResponseHead& head) {
  return http::MakeResponse(head, 200, "application/json", ApiDescription());
}

Action ShowStatus(Service& service, const HttpRequest&, const ResponseHead& head) {
  return AnswerStatus(service, head);
}

// Adapts a handler that always answers at once.
template <HttpResponse (*kHandler)(Service&, const HttpRequest&, const ResponseHead&)>
Action AsAction(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return kHandler(service, request, head);
}

constexpr http::Route kRoutes[] = {
    {"GET", "/", Page},
    {"GET", "/health/live", Live},
    {"GET", "/health/ready", Ready},
    {"GET", "/metrics", ExposeMetrics},
    {"GET", "/openapi.json", Description},
    {"GET", "/v1/models", Models},
    {"GET", "/v1/models/{id}", Model},
    {"GET", "/v1/status", ShowStatus},
    {"GET", "/admin/predictors", AsAction<AnswerPredictors>},
    {"POST", "/admin/predictors", AsAction<FreezePredictors>, true},
    {"GET", "/admin/requests", AsAction<AnswerRequests>},
    {"POST", "/admin/cancel", AsAction<CancelRequest>},
    {"POST", "/admin/reload", AsAction<Reload>},
    {"POST", "/admin/drain", AsAction<Drain>},
    {"POST", "/admin/log-level", AsAction<SetLogLevel>},
};
constexpr http::PathAlias kAliases[] = {{"/models", "/v1/models"}};

}  // namespace

const http::Router& AllRoutes() {
  static const http::Router router({{.routes = kRoutes, .aliases = kAliases},
                                    openai::Routes(),
                                    anthropic::Routes(),
                                    ollama::Routes(),
                                    llama::Routes()});
  return router;
}

}  // namespace thermocline::routes
