#include "server/ollama/routes.h"

#include <cstdio>

#include "engine/base/hash.h"
#include "engine/base/strings.h"
#include "engine/text/tokenizer.h"
#include "server/http/plan_parts.h"
#include "server/http/refusal.h"
#include "server/ollama/error.h"
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

EngineStats StatsOf(const Service& service) {
  return service.engine() == nullptr ? EngineStats() : service.engine()->Stats();
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

// A digest of 64 digits made from the model's name and size.
std::string Digest(const std::string& name, const EngineStats& stats) {
  const std::string hex =
      base::HashOf(StrCat(name, ":", stats.num_parameters, ":", stats.weight_bytes)).Hex();
  return hex + hex;
}

Json ModelJson(const Service& service, const std::string& name, const EngineStats& stats) {
  return Json::Object{{"name", name + ":latest"},
                      {"model", name + ":latest"},
                      {"modified_at", Timestamp()},
                      {"size", stats.weight_bytes},
                      {"digest", Digest(service.model_name(), stats)},
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

Action PlanAnswer(Service& service, const ResponseHead& head, Result<OllamaRequest> parsed) {
  if (!parsed.ok()) return http::RefusalResponse(service, head, parsed.status());
  if (parsed->load_only) {
    const Status known = server::CheckModel(service, parsed->generation.model);
    if (!known.ok()) return http::RefusalResponse(service, head, known);
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

Action Version(Service&, const HttpRequest&, const ResponseHead& head) {
  return http::JsonResponse(head, 200, Json::Object{{"version", kVersion}});
}

Action Tags(Service& service, const HttpRequest&, const ResponseHead& head) {
  const EngineStats stats = StatsOf(service);
  Json::Array models;
  for (const std::string& name : service.model_names())
    if (name != "*") models.push_back(ModelJson(service, name, stats));
  return http::JsonResponse(head, 200, Json::Object{{"models", std::move(models)}});
}

Action Running(Service& service, const HttpRequest&, const ResponseHead& head) {
  const EngineStats stats = StatsOf(service);
  Json::Array models;
  if (service.engine() != nullptr) {
    Json model = ModelJson(service, service.model_name(), stats);
    model.Set("expires_at", "9999-12-31T00:00:00Z");
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
                   {"modified_at", Timestamp()}});
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

// The served model is there already; other models cannot be downloaded.
Action Pull(Service& service, const HttpRequest& request, const ResponseHead& head) {
  const auto body = protocol::ParseBody(request.body());
  if (!body.ok()) return http::RefusalResponse(service, head, body.status());
  protocol::Fields fields(*body);
  std::string name = fields.String("model", "");
  if (name.empty()) name = fields.String("name", "");
  if (name.empty()) fields.Fail("model", "'model' must name a model");
  const bool stream = fields.Bool("stream", true);
  (void)fields.Bool("insecure", false);
  if (!fields.ok()) return http::RefusalResponse(service, head, fields.status());
  if (!server::CheckModel(service, ModelName(name)).ok())
    return http::RefusalResponse(
        service, head,
        base::Unimplemented("this server serves one model, ", service.model_name(),
                            ", and keeps no others"));
  const std::string done = Json(Json::Object{{"status", "success"}}).Dump() + "\n";
  return http::MakeResponse(head, 200, stream ? "application/x-ndjson" : "application/json", done);
}

constexpr http::Route kRoutes[] = {
    {"GET", "/api/version", Version}, {"GET", "/api/tags", Tags},
    {"GET", "/api/ps", Running},      {"POST", "/api/show", Show},
    {"POST", "/api/chat", Chat},      {"POST", "/api/generate", Generate},
    {"POST", "/api/embed", Embed},    {"POST", "/api/embeddings", Embeddings},
    {"POST", "/api/pull", Pull},
};
constexpr std::string_view kErrorPaths[] = {"/api/"};

}  // namespace

const http::Protocol& Routes() {
  static const http::Protocol protocol = {
      .routes = kRoutes, .errors = &kErrors, .error_paths = kErrorPaths};
  return protocol;
}

}  // namespace thermocline::ollama
