#include "server/http/ollama_routes.h"

#include <cstdio>

#include "engine/base/hash.h"
#include "engine/base/strings.h"
#include "engine/text/tokenizer.h"
#include "server/http/plan_parts.h"
#include "server/http/refusal.h"
#include "server/ollama/ollama_answer.h"
#include "server/ollama/ollama_request.h"
#include "server/protocol/fields.h"

namespace thermocline::http {
namespace {

using server::Submission;

// Of this API, whose features clients ask for by version.
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

// 64 digits that stand for the model: of its name and size.
std::string Digest(const std::string& name, const EngineStats& stats) {
  const std::string hex =
      base::HashOf(StrCat(name, ":", stats.num_parameters, ":", stats.weight_bytes)).Hex();
  return hex + hex;
}

Json ModelJson(const Service& service, const std::string& name, const EngineStats& stats) {
  return Json::Object{{"name", name + ":latest"},
                      {"model", name + ":latest"},
                      {"modified_at", ollama::Timestamp()},
                      {"size", static_cast<std::int64_t>(stats.weight_bytes)},
                      {"digest", Digest(service.model_name(), stats)},
                      {"details", DetailsJson(stats)}};
}

// A request that asks for nothing.
Json LoadedJson(const Service& service, const ollama::OllamaRequest& asked) {
  Json::Object out{{"model", service.model_name()}, {"created_at", ollama::Timestamp()}};
  if (asked.chat) {
    out.emplace_back("message", Json::Object{{"role", "assistant"}, {"content", ""}});
  } else {
    out.emplace_back("response", "");
  }
  out.emplace_back("done", true);
  out.emplace_back("done_reason", asked.unload ? "unload" : "load");
  return out;
}

Action PlanAnswer(Service& service, const ResponseHead& head, Result<ollama::OllamaRequest> asked) {
  if (!asked.ok()) return RefusalResponse(service, head, asked.status());
  if (asked->load_only) {
    const Status known = server::CheckModel(service, asked->asked.model);
    if (!known.ok()) return RefusalResponse(service, head, known);
    return JsonResponse(head, 200, LoadedJson(service, *asked));
  }
  auto submission = SubmitEncoded(service, head, std::move(asked->asked));
  if (!submission.ok()) return RefusalResponse(service, head, submission.status());
  return GenerationPlan{
      .submission = *std::move(submission),
      .format = std::make_unique<ollama::OllamaAnswer>(service.model_name(), asked->chat),
      .stream = asked->stream};
}

Action PlanEmbed(Service& service, const HttpRequest& request, const ResponseHead& head,
                 bool single) {
  auto asked = ollama::ParseEmbed(request.body(), service.pooling(), single,
                                  service.live()->config.strict_fields);
  if (!asked.ok()) return RefusalResponse(service, head, asked.status());
  if (asked->empty) {
    const Status known = server::CheckModel(service, asked->asked.model);
    if (!known.ok()) return RefusalResponse(service, head, known);
    return JsonResponse(head, 200,
                        ollama::EmbedAnswer(service.model_name(), 0, single).Whole(Usage()));
  }
  const Status dimensions = CheckDimensions(service, asked->dimensions);
  if (!dimensions.ok()) return RefusalResponse(service, head, dimensions);
  auto submission = SubmitEncoded(service, head, std::move(asked->asked));
  if (!submission.ok()) return RefusalResponse(service, head, submission.status());
  return GenerationPlan{.submission = *std::move(submission),
                        .format = std::make_unique<ollama::EmbedAnswer>(service.model_name(),
                                                                        asked->dimensions, single)};
}

}  // namespace

Action OllamaVersion(Service&, const HttpRequest&, const ResponseHead& head) {
  return JsonResponse(head, 200, Json::Object{{"version", kVersion}});
}

Action OllamaTags(Service& service, const HttpRequest&, const ResponseHead& head) {
  const EngineStats stats = StatsOf(service);
  Json::Array models;
  for (const std::string& name : service.model_names())
    if (name != "*") models.push_back(ModelJson(service, name, stats));
  return JsonResponse(head, 200, Json::Object{{"models", std::move(models)}});
}

Action OllamaRunning(Service& service, const HttpRequest&, const ResponseHead& head) {
  const EngineStats stats = StatsOf(service);
  Json::Array models;
  if (service.engine() != nullptr) {
    Json model = ModelJson(service, service.model_name(), stats);
    model.Set("expires_at", "9999-12-31T00:00:00Z");
    model.Set("size_vram", stats.hot.used ? static_cast<std::int64_t>(stats.hot.bytes) : 0);
    model.Set("context_length", stats.context_length);
    models.push_back(std::move(model));
  }
  return JsonResponse(head, 200, Json::Object{{"models", std::move(models)}});
}

Action OllamaShow(Service& service, const HttpRequest& request, const ResponseHead& head) {
  const auto body = protocol::ParseBody(request.body());
  if (!body.ok()) return RefusalResponse(service, head, body.status());
  protocol::Fields fields(*body);
  std::string name = fields.String("model", "");
  if (name.empty()) name = fields.String("name", "");
  (void)fields.Bool("verbose", false);
  for (const char* overrides : {"system", "template", "options"}) (void)fields.Find(overrides);
  fields.CheckUnknown(service.live()->config.strict_fields);
  if (!fields.ok()) return RefusalResponse(service, head, fields.status());
  const Status known = server::CheckModel(service, ollama::ModelName(name));
  const Status ready = service.Readiness();
  if (!known.ok()) return FailureResponse(service, head, known);
  if (!ready.ok()) return FailureResponse(service, head, ready);
  const EngineStats stats = StatsOf(service);
  const model::Vocabulary& vocabulary = service.engine()->tokenizer().vocabulary();
  Json::Array capabilities{"completion"};
  if (vocabulary.infill.known()) capabilities.emplace_back("insert");
  if (service.chat() != nullptr) capabilities.emplace_back("tools");
  if (service.output_format()->reasoning.known()) capabilities.emplace_back("thinking");
  const std::string prefix = stats.architecture + ".";
  return JsonResponse(
      head, 200,
      Json::Object{{"modelfile", ""},
                   {"parameters", ""},
                   {"template", vocabulary.chat_template},
                   {"details", DetailsJson(stats)},
                   {"model_info", Json::Object{{"general.architecture", stats.architecture},
                                               {"general.parameter_count", stats.num_parameters},
                                               {prefix + "context_length", stats.context_length}}},
                   {"capabilities", std::move(capabilities)},
                   {"modified_at", ollama::Timestamp()}});
}

Action OllamaChat(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return PlanAnswer(
      service, head,
      ollama::ParseChat(request.body(), DefaultsOf(service), StatsOf(service).context_length));
}

Action OllamaGenerate(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return PlanAnswer(
      service, head,
      ollama::ParseGenerate(request.body(), DefaultsOf(service), StatsOf(service).context_length));
}

Action OllamaEmbed(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return PlanEmbed(service, request, head, false);
}

Action OllamaEmbeddings(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return PlanEmbed(service, request, head, true);
}

// The model that is served is there already; others cannot be fetched.
Action OllamaPull(Service& service, const HttpRequest& request, const ResponseHead& head) {
  const auto body = protocol::ParseBody(request.body());
  if (!body.ok()) return RefusalResponse(service, head, body.status());
  protocol::Fields fields(*body);
  std::string name = fields.String("model", "");
  if (name.empty()) name = fields.String("name", "");
  if (name.empty()) fields.Fail("model", "'model' must name a model");
  const bool stream = fields.Bool("stream", true);
  (void)fields.Bool("insecure", false);
  if (!fields.ok()) return RefusalResponse(service, head, fields.status());
  if (!server::CheckModel(service, ollama::ModelName(name)).ok())
    return RefusalResponse(service, head,
                           base::Unimplemented("this server serves one model, ",
                                               service.model_name(), ", and keeps no others"));
  const std::string done = Json(Json::Object{{"status", "success"}}).Dump() + "\n";
  return MakeResponse(head, 200, stream ? "application/x-ndjson" : "application/json", done);
}

}  // namespace thermocline::http
