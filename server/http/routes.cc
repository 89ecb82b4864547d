#include "server/http/routes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>

#include "server/http/admin.h"
#include "server/http/api_description.h"
#include "server/http/gate.h"
#include "server/http/generate_routes.h"
#include "server/http/llama_routes.h"
#include "server/http/ollama_routes.h"
#include "server/http/refusal.h"
#include "server/http/status_route.h"
#include "server/http/text_routes.h"
#include "server/web/page.h"

namespace thermocline::http {
namespace {

using protocol::ClientError;
using server::Service;
using server::ServiceState;
namespace beast_http = boost::beast::http;

using Handler = Action (*)(Service&, const HttpRequest&, const ResponseHead&);

// "%2F" becomes "/"; what is no such escape stays.
std::string UrlDecoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const bool escape =
        text[i] == '%' && digits.size() == 2 &&
        std::from_chars(digits.data(), digits.data() + 2, value, 16).ptr == digits.data() + 2;
    out.push_back(escape ? static_cast<char>(value) : text[i]);
    if (escape) i += 2;
  }
  return out;
}

Action Page(Service&, const HttpRequest&, const ResponseHead& head) {
  HttpResponse response =
      MakeResponse(head, 200, "text/html; charset=utf-8", std::string(web::kPage));
  // No markup is ever made from text: the browser refuses it (trusted types), too.
  response.set("content-security-policy",
               StrCat("default-src 'none'; connect-src 'self'; img-src data:; style-src '",
                      web::kPageStyleHash, "'; script-src '", web::kPageScriptHash,
                      "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                      "require-trusted-types-for 'script'; trusted-types 'none'"));
  response.set("referrer-policy", "no-referrer");
  response.set(beast_http::field::cache_control, "no-cache");  // another version, another page
  return response;
}

Action Live(Service&, const HttpRequest&, const ResponseHead& head) {
  return JsonResponse(head, 200, Json::Object{{"status", "live"}});
}

Action Ready(Service& service, const HttpRequest&, const ResponseHead& head) {
  const Status ready = service.Readiness();
  if (!ready.ok()) return FailureResponse(service, head, ready);
  return JsonResponse(head, 200,
                      Json::Object{{"status", "ready"}, {"model", service.model_name()}});
}

Action ExposeMetrics(Service& service, const HttpRequest&, const ResponseHead& head) {
  const Engine* engine = service.engine();
  EngineStats stats;
  if (engine != nullptr) stats = engine->Stats();
  const bool all = head.admin || !service.live()->needs_keys();
  return MakeResponse(
      head, 200, "text/plain; version=0.0.4; charset=utf-8",
      service.metrics().Expose(
          service.state(), engine != nullptr ? &stats : nullptr, service.model_name(),
          all ? server::MetricReader::kOperator : server::MetricReader::kClient));
}

Action ShowStatus(Service& service, const HttpRequest&, const ResponseHead& head) {
  return AnswerStatus(service, head);
}

// With the context and the sampling that holds where a request gives none, once the model is
// loaded. The context has the names of llama-server, vLLM and others.
Json ModelJson(const Service& service, const std::string& name) {
  Json::Object model{
      {"id", name}, {"object", "model"}, {"created", service.started_at()}, {"owned_by", "local"}};
  if (service.engine() == nullptr) return model;
  const EngineStats stats = service.engine()->Stats();
  model.emplace_back("context_length", stats.context_length);
  model.emplace_back("max_model_len", stats.context_length);
  model.emplace_back("meta", Json::Object{{"n_ctx", stats.context_length},
                                          {"n_ctx_train", stats.context_length_trained},
                                          {"n_embd", stats.hidden_size},
                                          {"n_params", stats.num_parameters},
                                          {"n_vocab", stats.vocab_size},
                                          {"size", stats.weight_bytes}});
  Json::Array modes;
  for (const FfnMode mode : stats.ffn_offered) modes.emplace_back(FfnModeName(mode));
  model.emplace_back("ffn_modes", std::move(modes));
  const SamplingParams s = WithDefaults({}, service.sampling_defaults());
  Json::Object sampling;
  for (const SamplingField& f : SamplingFields())
    if (f.has_preference())
      sampling.emplace_back(f.name, f.number != nullptr ? Json(s.*f.number) : Json(s.*f.whole));
  model.emplace_back("sampling", std::move(sampling));
  return model;
}

// Anthropic's shape, for its clients.
Json AnthropicModelJson(const Service& service, const std::string& name) {
  const std::time_t started = service.started_at();
  std::tm utc = {};
  gmtime_r(&started, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  Json::Object model{{"type", "model"}, {"id", name}, {"display_name", name}, {"created_at", text}};
  if (service.engine() != nullptr)
    model.emplace_back("max_input_tokens", service.engine()->Stats().context_length);
  return model;
}

Action Models(Service& service, const HttpRequest&, const ResponseHead& head) {
  const bool anthropic = head.errors == ErrorStyle::kAnthropic;
  Json::Array list;
  Json first, last;
  for (const std::string& name : service.model_names()) {
    if (name == "*") continue;
    list.push_back(anthropic ? AnthropicModelJson(service, name) : ModelJson(service, name));
    if (first.is_null()) first = name;
    last = name;
  }
  if (anthropic)
    return JsonResponse(head, 200,
                        Json::Object{{"data", std::move(list)},
                                     {"has_more", false},
                                     {"first_id", std::move(first)},
                                     {"last_id", std::move(last)}});
  return JsonResponse(head, 200, Json::Object{{"object", "list"}, {"data", std::move(list)}});
}

Action Model(Service& service, const HttpRequest& request, const ResponseHead& head) {
  const std::string name =
      UrlDecoded(PathOf(request.target()).substr(std::string_view("/v1/models/").size()));
  const Status known = server::CheckModel(service, base::ReplaceInvalidUtf8(name));
  if (!known.ok()) return FailureResponse(service, head, known);
  const bool anthropic = head.errors == ErrorStyle::kAnthropic;
  return JsonResponse(head, 200,
                      anthropic ? AnthropicModelJson(service, name) : ModelJson(service, name));
}

Action NoStoredResponse(Service&, const HttpRequest&, const ResponseHead& head) {
  return ErrorResponse(
      head, ClientError(404, "not_found", "nothing is stored here: responses are not kept"));
}

// Claude Code asks whether its server is there.
Action Hello(Service&, const HttpRequest&, const ResponseHead& head) {
  return JsonResponse(head, 200, Json::Object{{"message", "hello"}});
}

// Claude Code repeats its usage events until a server takes them. They are not kept.
Action DropEvents(Service&, const HttpRequest&, const ResponseHead& head) {
  return JsonResponse(head, 200, Json::Object{});
}

Action Description(Service&, const HttpRequest&, const ResponseHead& head) {
  return MakeResponse(head, 200, "application/json", ApiDescription());
}

// A handler that always answers at once.
template <HttpResponse (*kHandler)(Service&, const HttpRequest&, const ResponseHead&)>
Action AsAction(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return kHandler(service, request, head);
}

struct Route {
  const char* method;
  const char* path;
  Handler handler;
};

constexpr std::array kRoutes = {
    Route{"GET", "/", Page},
    Route{"GET", "/health/live", Live},
    Route{"GET", "/health/ready", Ready},
    Route{"GET", "/metrics", ExposeMetrics},
    Route{"GET", "/openapi.json", Description},
    Route{"GET", "/v1/models", Models},
    Route{"GET", "/v1/models/{id}", Model},
    Route{"GET", "/v1/status", ShowStatus},
    Route{"POST", "/v1/chat/completions", PlanChat},
    Route{"POST", "/v1/completions", PlanCompletion},
    Route{"POST", "/v1/responses", PlanResponses},
    Route{"POST", "/v1/responses/input_tokens", CountInput},
    Route{"GET", "/v1/responses/{id}", NoStoredResponse},
    Route{"DELETE", "/v1/responses/{id}", NoStoredResponse},
    Route{"POST", "/v1/responses/{id}", NoStoredResponse},
    Route{"POST", "/v1/messages", PlanMessages},
    Route{"POST", "/v1/messages/count_tokens", CountMessages},
    Route{"GET", "/api/hello", Hello},
    Route{"POST", "/api/event_logging/batch", DropEvents},
    Route{"GET", "/api/version", OllamaVersion},
    Route{"GET", "/api/tags", OllamaTags},
    Route{"GET", "/api/ps", OllamaRunning},
    Route{"POST", "/api/show", OllamaShow},
    Route{"POST", "/api/chat", OllamaChat},
    Route{"POST", "/api/generate", OllamaGenerate},
    Route{"POST", "/api/embed", OllamaEmbed},
    Route{"POST", "/api/embeddings", OllamaEmbeddings},
    Route{"POST", "/api/pull", OllamaPull},
    Route{"POST", "/completion", LlamaCompletion},
    Route{"POST", "/infill", LlamaInfill},
    Route{"GET", "/props", LlamaProperties},
    Route{"GET", "/slots", LlamaSlots},
    Route{"GET", "/health", LlamaHealth},
    Route{"POST", "/v1/embeddings", PlanEmbeddings},
    Route{"POST", "/embedding", PlanLlamaEmbeddings},
    Route{"POST", "/v1/rerank", PlanRerank},
    Route{"POST", "/v2/rerank", PlanRerank},
    Route{"POST", "/v1/tokens/count", CountTokens},
    Route{"POST", "/tokenize", Tokenize},
    Route{"POST", "/detokenize", Detokenize},
    Route{"GET", "/tokenizer_info", TokenizerInfo},
    Route{"POST", "/apply-template", ApplyTemplate},
    Route{"GET", "/admin/predictors", AsAction<AnswerPredictors>},
    Route{"POST", "/admin/predictors", AsAction<FreezePredictors>},
    Route{"GET", "/admin/requests", AsAction<AnswerRequests>},
    Route{"POST", "/admin/cancel", AsAction<CancelRequest>},
    Route{"POST", "/admin/reload", AsAction<Reload>},
    Route{"POST", "/admin/drain", AsAction<Drain>},
    Route{"POST", "/admin/log-level", AsAction<SetLogLevel>},
};

// Other names of routes: llama-server's, and those of clients whose base URL lacks "/v1".
struct PathAlias {
  std::string_view alias, path;
};
constexpr PathAlias kAliases[] = {
    {"/chat/completions", "/v1/chat/completions"},
    {"/responses", "/v1/responses"},
    {"/models", "/v1/models"},
    {"/embeddings", "/embedding"},
    {"/rerank", "/v1/rerank"},
    {"/reranking", "/v1/rerank"},
    {"/v1/reranking", "/v1/rerank"},
    {"/v1/health", "/health"},
    {"/v1/tokenize", "/tokenize"},
    {"/v1/detokenize", "/detokenize"},
    {"/v1/apply-template", "/apply-template"},
};

// The path without a slash at its end, by the name that the table of routes has for it.
std::string RoutePath(const HttpRequest& request) {
  std::string path = PathOf(request.target());
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const auto* const found =
      std::find_if(std::begin(kAliases), std::end(kAliases),
                   [&path](const PathAlias& each) { return each.alias == path; });
  return found == std::end(kAliases) ? path : std::string(found->path);
}

// "{id}" at a path's end stands for anything but nothing and the paths that other routes have.
bool Matches(std::string_view pattern, std::string_view path) {
  const std::size_t brace = pattern.find('{');
  if (brace == std::string_view::npos) return path == pattern;
  return path.size() > brace && path.starts_with(pattern.substr(0, brace)) &&
         std::none_of(kRoutes.begin(), kRoutes.end(),
                      [path](const Route& route) { return route.path == path; });
}

// 405 with the methods there are, or 404.
Action NoRoute(const std::string& path, const std::string& method, const ResponseHead& head) {
  std::string allowed;
  for (const Route& r : kRoutes) {
    if (!Matches(r.path, path)) continue;
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

std::string RouteOf(const HttpRequest& request) {
  const std::string path = RoutePath(request);
  const auto found = std::find_if(kRoutes.begin(), kRoutes.end(),
                                  [&](const Route& route) { return Matches(route.path, path); });
  return found == kRoutes.end() ? "unknown" : found->path;
}

Action RouteRequest(Service& service, const HttpRequest& request, const ResponseHead& head) {
  const std::string path = RoutePath(request);
  const std::string method(request.method_string());
  for (const Route& route : kRoutes) {
    const bool matches =
        method == route.method || (method == "HEAD" && std::string_view(route.method) == "GET");
    if (matches && Matches(route.path, path)) return route.handler(service, request, head);
  }
  return NoRoute(path, method, head);
}

std::vector<std::pair<std::string, std::string>> RouteTable() {
  std::vector<std::pair<std::string, std::string>> table;
  table.reserve(std::size(kRoutes));
  for (const Route& route : kRoutes) table.emplace_back(route.method, route.path);
  return table;
}

}  // namespace thermocline::http
