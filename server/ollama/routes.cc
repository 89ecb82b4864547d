#include "server/ollama/routes.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <optional>

#include "engine/base/sha256.h"
#include "engine/base/strings.h"
#include "engine/text/tokenizer.h"
#include "server/core/held_model.h"
#include "server/http/plan_parts.h"
#include "server/http/refusal.h"
#include "server/ollama/error.h"
#include "server/ollama/model_routes.h"
#include "server/ollama/ollama_answer.h"
#include "server/ollama/ollama_request.h"
#include "server/protocol/fields.h"

namespace thermocline::ollama {
namespace {

using http::Action;
using http::GenerationPlan;
using http::HttpRequest;
using http::ResponseHead;
using server::Service;
using server::Submission;

// The API version. Clients decide by it which features to use.
constexpr const char* kVersion = "0.12.0";

// The figures of the engine, or of a sleeping model those that its files state.
EngineStats StatsOf(const Service& service) {
  if (service.engine() != nullptr) return service.engine()->Stats();
  const auto facts = service.facts();
  if (facts == nullptr) return {};
  EngineStats stats;
  stats.architecture = facts->architecture;
  stats.weight_type = facts->weight_type;
  stats.num_parameters = facts->num_parameters;
  stats.weight_bytes = static_cast<std::size_t>(facts->bytes);
  return stats;
}

std::time_t ModifiedAt(const Service& service) {
  const auto facts = service.facts();
  return facts == nullptr ? service.started_at() : facts->modified;
}

std::string ParameterSize(std::int64_t parameters) {
  char text[32];
  std::snprintf(text, sizeof(text), parameters >= 1'000'000'000 ? "%.1fB" : "%.0fM",
                static_cast<double>(parameters) / (parameters >= 1'000'000'000 ? 1e9 : 1e6));
  return text;
}

std::string Upper(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return text;
}

Json DetailsJson(const EngineStats& stats) {
  return Json::Object{{"parent_model", ""},
                      {"format", "gguf"},
                      {"family", stats.architecture},
                      {"families", Json::Array{stats.architecture}},
                      {"parameter_size", ParameterSize(stats.num_parameters)},
                      {"quantization_level", Upper(stats.weight_type)}};
}

// 64 digits that change with the model's file: hashing the file itself would take long.
std::string Digest(const Service& service) {
  const auto facts = service.facts();
  const auto of_file = facts == nullptr ? ModelFacts() : *facts;
  return base::HexOf(base::Sha256Of(
      StrCat(service.config().model.path, ":", of_file.bytes, ":", of_file.modified)));
}

// The name as Ollama's clients write it, with a tag.
std::string Tagged(const std::string& name) {
  return name.find(':') == std::string::npos ? name + ":latest" : name;
}

Json ModelJson(const Service& service, const std::string& name, const EngineStats& stats) {
  return Json::Object{{"name", Tagged(name)},
                      {"model", Tagged(name)},
                      {"modified_at", Timestamp(ModifiedAt(service))},
                      {"size", stats.weight_bytes},
                      {"digest", Digest(service)},
                      {"details", DetailsJson(stats)}};
}

// The answer to a request without a prompt.
Json LoadedJson(const Service& service, const OllamaRequest& parsed) {
  Json::Object out{{"model", service.model_name()}, {"created_at", Timestamp()}};
  if (parsed.chat) {
    out.emplace_back("message", Json::Object{{"role", "assistant"}, {"content", ""}});
  } else {
    out.emplace_back("response", "");
  }
  out.emplace_back("done", true);
  out.emplace_back("done_reason", parsed.unload ? "unload" : "load");
  return out;
}

void KeepAlive(Service& service, const ResponseHead& head, std::optional<int> seconds) {
  if (seconds.has_value() && service.models() != nullptr && http::MayRule(service, head))
    service.models()->KeepAlive(service, seconds);
}

Action PlanAnswer(Service& service, const ResponseHead& head, Result<OllamaRequest> parsed) {
  if (!parsed.ok()) return http::RefusalResponse(service, head, parsed.status());
  KeepAlive(service, head, parsed->keep_alive_s);
  if (parsed->load_only) {
    const Status known = server::CheckModel(service, parsed->generation.model);
    if (!known.ok()) return http::RefusalResponse(service, head, known);
    if (parsed->unload && service.models() != nullptr && http::MayRule(service, head))
      (void)service.models()->Sleep(service);
    return http::JsonResponse(head, 200, LoadedJson(service, *parsed));
  }
  auto submission = http::SubmitEncoded(service, head, std::move(parsed->generation));
  if (!submission.ok()) return http::RefusalResponse(service, head, submission.status());
  return GenerationPlan{
      .submission = *std::move(submission),
      .format = std::make_unique<OllamaAnswer>(service.model_name(), parsed->chat),
      .stream = parsed->stream};
}

Action PlanEmbed(Service& service, const HttpRequest& request, const ResponseHead& head,
                 bool single) {
  auto parsed = ParseEmbed(request.body(), service.pooling(), single,
                           service.reloadable()->config.strict_fields);
  if (!parsed.ok()) return http::RefusalResponse(service, head, parsed.status());
  KeepAlive(service, head, parsed->keep_alive_s);
  if (parsed->empty) {
    const Status known = server::CheckModel(service, parsed->generation.model);
    if (!known.ok()) return http::RefusalResponse(service, head, known);
    return http::JsonResponse(head, 200,
                              EmbedAnswer(service.model_name(), 0, single).FullResponse(Usage()));
  }
  const Status dimensions = http::CheckDimensions(service, parsed->dimensions);
  if (!dimensions.ok()) return http::RefusalResponse(service, head, dimensions);
  auto submission = http::SubmitEncoded(service, head, std::move(parsed->generation));
  if (!submission.ok()) return http::RefusalResponse(service, head, submission.status());
  return GenerationPlan{
      .submission = *std::move(submission),
      .format = std::make_unique<EmbedAnswer>(service.model_name(), parsed->dimensions, single)};
}

// The time at which the model falls asleep.
std::string ExpiresAt(const Service& service) {
  using Clock = server::ServedModels::Clock;
  const auto at = service.models() == nullptr ? std::nullopt : service.models()->ExpiresAt(service);
  if (!at.has_value()) return "9999-12-31T00:00:00Z";
  const auto left = std::chrono::duration_cast<std::chrono::seconds>(*at - Clock::now());
  const std::time_t when = std::time(nullptr) + left.count();
  return Timestamp(when);
}

Action Version(Service&, const HttpRequest&, const ResponseHead& head) {
  return http::JsonResponse(head, 200, Json::Object{{"version", kVersion}});
}

Action Tags(Service& service, const HttpRequest&, const ResponseHead& head) {
  Json::Array models;
  for (const auto& each : server::HoldAllOf(service, head.models)) {
    const EngineStats stats = StatsOf(*each);
    for (const std::string& name : each->model_names(head.models))
      if (name != "*") models.push_back(ModelJson(*each, name, stats));
  }
  return http::JsonResponse(head, 200, Json::Object{{"models", std::move(models)}});
}

Action Running(Service& service, const HttpRequest&, const ResponseHead& head) {
  Json::Array models;
  for (const auto& each : server::HoldAllOf(service, head.models)) {
    if (each->engine() == nullptr) continue;
    const EngineStats stats = StatsOf(*each);
    Json model = ModelJson(*each, each->model_name(), stats);
    model.Set("expires_at", ExpiresAt(*each));
    model.Set("size_vram", stats.hot.used ? static_cast<std::int64_t>(stats.hot.bytes) : 0);
    model.Set("context_length", stats.context_length);
    models.push_back(std::move(model));
  }
  return http::JsonResponse(head, 200, Json::Object{{"models", std::move(models)}});
}

Action Show(Service& service, const HttpRequest& request, const ResponseHead& head) {
  const auto body = protocol::ParseBody(request.body());
  if (!body.ok()) return http::RefusalResponse(service, head, body.status());
  protocol::Fields fields(*body);
  std::string name = fields.String("model", "");
  if (name.empty()) name = fields.String("name", "");
  (void)fields.Bool("verbose", false);
  for (const char* overrides : {"system", "template", "options"}) (void)fields.Find(overrides);
  fields.CheckUnknown(service.reloadable()->config.strict_fields);
  if (!fields.ok()) return http::RefusalResponse(service, head, fields.status());
  const Status known = server::CheckModel(service, ModelName(name));
  const Status ready = service.Readiness();
  if (!known.ok()) return http::FailureResponse(service, head, known);
  if (!ready.ok()) return http::FailureResponse(service, head, ready);
  const EngineStats stats = StatsOf(service);
  const model::Vocabulary& vocabulary = service.engine()->tokenizer().vocabulary();
  Json::Array capabilities{"completion"};
  if (vocabulary.infill.known()) capabilities.emplace_back("insert");
  if (service.chat() != nullptr) capabilities.emplace_back("tools");
  if (service.output_format()->reasoning.known()) capabilities.emplace_back("thinking");
  const std::string prefix = stats.architecture + ".";
  return http::JsonResponse(
      head, 200,
      Json::Object{{"modelfile", ""},
                   {"parameters", ""},
                   {"template", vocabulary.chat_template},
                   {"details", DetailsJson(stats)},
                   {"model_info", Json::Object{{"general.architecture", stats.architecture},
                                               {"general.parameter_count", stats.num_parameters},
                                               {prefix + "context_length", stats.context_length}}},
                   {"capabilities", std::move(capabilities)},
                   {"modified_at", Timestamp(ModifiedAt(service))}});
}

Action Chat(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return PlanAnswer(
      service, head,
      ParseChat(request.body(), http::DefaultsOf(service), StatsOf(service).context_length));
}

Action Generate(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return PlanAnswer(
      service, head,
      ParseGenerate(request.body(), http::DefaultsOf(service), StatsOf(service).context_length));
}

Action Embed(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return PlanEmbed(service, request, head, false);
}

Action Embeddings(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return PlanEmbed(service, request, head, true);
}

constexpr http::Route kRoutes[] = {
    {"GET", "/api/version", Version},
    {"GET", "/api/tags", Tags},
    {"GET", "/api/ps", Running},
    {"POST", "/api/show", Show},
    {"POST", "/api/chat", Chat},
    {"POST", "/api/generate", Generate},
    {"POST", "/api/embed", Embed},
    {"POST", "/api/embeddings", Embeddings},
    {"POST", "/api/pull", PullModel, true},
    {"POST", "/api/copy", CopyModel, true},
    {"DELETE", "/api/delete", DeleteModel},
};
constexpr std::string_view kErrorPaths[] = {"/api/"};

}  // namespace

const http::Protocol& Routes() {
  static const http::Protocol protocol = {
      .routes = kRoutes, .errors = &kErrors, .error_paths = kErrorPaths};
  return protocol;
}

}  // namespace thermocline::ollama
