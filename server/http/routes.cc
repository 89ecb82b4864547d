#include "server/http/routes.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "engine/text/tokenizer.h"
#include "server/http/admin.h"
#include "server/http/status_route.h"
#include "server/openai/chat_request.h"
#include "server/web/page.h"

namespace thermocline::http {
namespace {

using openai::ClientError;
using server::Service;
using server::ServiceState;
namespace beast_http = boost::beast::http;

using Action = std::variant<HttpResponse, GenerationPlan>;
using Handler = Action (*)(Service&, const HttpRequest&, const ResponseHead&);

Status NotReady(const Service& service) {
  switch (service.state()) {
    case ServiceState::kReady:
      return OkStatus();
    case ServiceState::kDraining:
      return base::Unavailable("the server is shutting down");
    case ServiceState::kFailed:
      return base::Unavailable("the model failed to load; the server's log says why");
    case ServiceState::kLoading:
      break;
  }
  return base::Unavailable("the model is loading (",
                           static_cast<int>(service.load_progress() * 100), "%)");
}

Action Page(Service&, const HttpRequest&, const ResponseHead& head) {
  HttpResponse response =
      MakeResponse(head, 200, "text/html; charset=utf-8", std::string(web::kPage));
  response.set("content-security-policy",
               "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src "
               "'unsafe-inline'");
  return response;
}

Action Live(Service&, const HttpRequest&, const ResponseHead& head) {
  return JsonResponse(head, 200, Json::Object{{"status", "live"}});
}

Action Ready(Service& service, const HttpRequest&, const ResponseHead& head) {
  const Status not_ready = NotReady(service);
  if (!not_ready.ok())
    return ErrorResponse(head, openai::FromStatus(not_ready), service.RetryAfterSeconds());
  return JsonResponse(head, 200,
                      Json::Object{{"status", "ready"}, {"model", service.model_name()}});
}

Action ExposeMetrics(Service& service, const HttpRequest&, const ResponseHead& head) {
  const Engine* engine = service.engine();
  EngineStats stats;
  if (engine != nullptr) stats = engine->Stats();
  return MakeResponse(
      head, 200, "text/plain; version=0.0.4; charset=utf-8",
      service.metrics().Expose(service.state(), engine != nullptr ? &stats : nullptr,
                               service.model_name()));
}

Action ShowStatus(Service& service, const HttpRequest&, const ResponseHead& head) {
  return AnswerStatus(service, head);
}

Json ModelJson(const Service& service) {
  return Json::Object{{"id", service.model_name()},
                      {"object", "model"},
                      {"created", service.started_at()},
                      {"owned_by", "local"}};
}

Action Models(Service& service, const HttpRequest&, const ResponseHead& head) {
  return JsonResponse(head, 200,
                      Json::Object{{"object", "list"}, {"data", Json::Array{ModelJson(service)}}});
}

Action UnknownModel(const Service& service, const ResponseHead& head, const std::string& name) {
  return ErrorResponse(
      head, ClientError(404, "model_not_found",
                        StrCat("the model '", name, "' does not exist; this server has '",
                               service.model_name(), "'")));
}

openai::ApiError TooLong(std::size_t tokens, bool at_least, int n_ctx) {
  openai::ApiError error = openai::FromStatus(
      base::OutOfRange("This model's maximum context length is ", n_ctx,
                       " tokens; your messages have ", at_least ? "at least " : "", tokens,
                       " tokens, which exceeds the available context size. Shorten the messages."),
      "messages");
  error.details = {{"n_prompt_tokens", static_cast<std::int64_t>(tokens)}, {"n_ctx", n_ctx}};
  return error;
}

// The prompt of a chat, or why there is none.
std::variant<std::vector<int>, openai::ApiError> EncodeChat(Service& service,
                                                            const Json& conversation) {
  const ChatFormatter* chat = service.chat();
  if (chat == nullptr) {
    return openai::FromStatus(base::InvalidArgument("the model has no chat template"), "messages");
  }
  const auto prompt = chat->Render(conversation);
  if (!prompt.ok()) {
    // The bounds on templates are the client's to keep, not a queue to wait for.
    const bool too_much = prompt.status().code() == StatusCode::kResourceExhausted;
    return openai::FromStatus(
        too_much ? base::InvalidArgument(prompt.status().message()) : prompt.status(), "messages");
  }
  const int n_ctx = service.engine()->Stats().context_length;
  // Megabytes that cannot fit need not be tokenized to know it.
  const std::size_t fewest = prompt->size() / service.engine()->tokenizer().token_bytes_max();
  if (fewest >= static_cast<std::size_t>(n_ctx)) return TooLong(fewest, true, n_ctx);
  std::vector<int> tokens = chat->Tokenize(*prompt);
  if (tokens.size() >= static_cast<std::size_t>(n_ctx)) return TooLong(tokens.size(), false, n_ctx);
  return tokens;
}

// From now on; 0 = none. A request may ask for less time than the server allows, not for more.
std::optional<std::chrono::steady_clock::time_point> DeadlineOf(double allowed_s, double asked_s) {
  double seconds = asked_s;
  if (allowed_s > 0 && (asked_s == 0 || asked_s > allowed_s)) seconds = allowed_s;
  if (seconds == 0) return std::nullopt;
  using Clock = std::chrono::steady_clock;
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Action ChatCompletions(Service& service, const HttpRequest& request, const ResponseHead& head) {
  auto parsed = openai::ParseChatRequest(
      request.body(),
      {.sampling = service.config().sampling, .max_tokens = service.config().max_tokens});
  const auto refuse = [&](const openai::ApiError& error) -> Action {
    service.metrics().RequestRejected(error.code == "context_length_exceeded" ? "too_long"
                                                                              : "bad_request");
    return ErrorResponse(head, error);
  };
  if (const auto* error = std::get_if<openai::ApiError>(&parsed)) return refuse(*error);
  auto& chat = std::get<openai::ChatRequest>(parsed);
  if (!chat.model.empty() && chat.model != service.model_name())
    return UnknownModel(service, head, chat.model);
  if (const Status not_ready = NotReady(service); !not_ready.ok())
    return RefusalResponse(service, head, not_ready);
  auto prompt = EncodeChat(service, chat.conversation);
  if (const auto* error = std::get_if<openai::ApiError>(&prompt)) return refuse(*error);
  chat.request.deadline = DeadlineOf(service.config().request_timeout_s, chat.timeout_s);
  chat.request.prompt = std::get<std::vector<int>>(std::move(prompt));
  return GenerationPlan{.request = std::move(chat.request),
                        .answer = openai::MakeAnswerHead(service.model_name(), chat.include_usage),
                        .stream = chat.stream};
}

Action ShowPredictors(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return AnswerPredictors(service, request, head);
}
Action ChangePredictors(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return FreezePredictors(service, request, head);
}

struct Route {
  const char* method;
  const char* path;
  Handler handler;
  bool admin = false;  // there only with server.admin
};

constexpr std::array kRoutes = {
    Route{"GET", "/", Page},
    Route{"GET", "/health/live", Live},
    Route{"GET", "/health/ready", Ready},
    Route{"GET", "/metrics", ExposeMetrics},
    Route{"GET", "/v1/models", Models},
    Route{"GET", "/v1/status", ShowStatus},
    Route{"POST", "/v1/chat/completions", ChatCompletions},
    Route{"GET", "/admin/predictors", ShowPredictors, true},
    Route{"POST", "/admin/predictors", ChangePredictors, true},
};

bool IsThere(const Route& route, const Service& service) {
  return !route.admin || service.config().admin;
}

// 405 with the methods there are, or 404.
Action NoRoute(const Service& service, const std::string& path, const std::string& method,
               const ResponseHead& head, std::string& route) {
  std::string allowed;
  for (const Route& r : kRoutes) {
    if (path != r.path || !IsThere(r, service)) continue;
    route = r.path;
    allowed += StrCat(allowed.empty() ? "" : ", ", r.method,
                      std::string_view(r.method) == "GET" ? ", HEAD" : "");
  }
  if (allowed.empty())
    return ErrorResponse(head, ClientError(404, "not_found",
                                           StrCat("there is no route ", method, " ",
                                                  base::ReplaceInvalidUtf8(path))));
  allowed += ", OPTIONS";
  HttpResponse response =
      method == "OPTIONS" ? MakeResponse(head, 204, "text/plain", "")
                          : ErrorResponse(head, ClientError(405, "method_not_allowed",
                                                            StrCat(method, " is not allowed on ",
                                                                   path, "; allowed: ", allowed)));
  response.set(beast_http::field::allow, allowed);
  return response;
}

}  // namespace

Routed RouteRequest(Service& service, const HttpRequest& request, const ResponseHead& head) {
  std::string target(request.target());
  // The absolute form, as proxies send it: "http://host/path".
  if (const std::size_t scheme = target.find("://");
      scheme != std::string::npos && target[0] != '/') {
    const std::size_t slash = target.find('/', scheme + 3);
    target = slash == std::string::npos ? "/" : target.substr(slash);
  }
  const std::string path = target.substr(0, target.find('?'));
  const std::string method(request.method_string());
  for (const Route& route : kRoutes) {
    const bool matches =
        method == route.method || (method == "HEAD" && std::string_view(route.method) == "GET");
    if (matches && path == route.path && IsThere(route, service))
      return {route.path, route.handler(service, request, head)};
  }
  constexpr std::string_view kModels = "/v1/models/";
  if (path.starts_with(kModels) && (method == "GET" || method == "HEAD")) {
    const std::string name = path.substr(kModels.size());
    return {"/v1/models/{id}", name == service.model_name()
                                   ? Action(JsonResponse(head, 200, ModelJson(service)))
                                   : UnknownModel(service, head, base::ReplaceInvalidUtf8(name))};
  }
  Routed none{.route = "unknown", .action = HttpResponse()};
  none.action = NoRoute(service, path, method, head, none.route);
  return none;
}

namespace {

// The field of the body that the engine found fault with.
const char* ParamOf(const Status& status) {
  if (status.message().starts_with("logit_bias")) return "logit_bias";
  if (status.message().starts_with("ffn_mode")) return "x_thermocline.ffn_mode";
  if (status.message().starts_with("spec_mode")) return "x_thermocline.speculation";
  if (status.message().starts_with("spec_tokens")) return "x_thermocline.draft_tokens";
  return "";
}

}  // namespace

HttpResponse RefusalResponse(Service& service, const ResponseHead& head, const Status& status) {
  const openai::ApiError error = openai::FromStatus(status, ParamOf(status));
  const bool wait = error.http_status == 429 || error.http_status == 503;
  const bool draining = service.state() == ServiceState::kDraining;
  service.metrics().RequestRejected(error.http_status == 429   ? "queue_full"
                                    : draining                 ? "draining"
                                    : error.http_status == 503 ? "loading"
                                                               : "bad_request");
  return ErrorResponse(head, error, wait ? service.RetryAfterSeconds() : 0);
}

}  // namespace thermocline::http
