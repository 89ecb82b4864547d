#include "server/llama/routes.h"

#include <filesystem>

#include "engine/base/index.h"
#include "engine/text/tokenizer.h"
#include "server/core/served_models.h"
#include "server/http/access.h"
#include "server/http/plan_parts.h"
#include "server/http/refusal.h"
#include "server/llama/llama_answer.h"
#include "server/llama/llama_request.h"
#include "server/llama/text_routes.h"

namespace thermocline::llama {
namespace {

using http::Action;
using http::GenerationPlan;
using http::HttpRequest;
using http::ResponseHead;
using server::Service;
using server::Submission;

// Returns the prompt's text for the answer.
std::string PromptText(const text::Tokenizer& tokenizer, const Submission& submission) {
  const auto* text = std::get_if<std::string>(&submission.generation_request().prompts[0]);
  return text != nullptr ? *text : tokenizer.Decode(submission.requests()[0].prompt, true);
}

Action PlanAnswer(Service& service, const ResponseHead& head, Result<LlamaRequest> parsed) {
  if (!parsed.ok()) return http::RefusalResponse(service, head, parsed.status());
  auto submission = http::SubmitEncoded(service, head, std::move(parsed->generation));
  if (!submission.ok()) return http::RefusalResponse(service, head, submission.status());
  const Request& request = submission->requests()[0];
  const text::Tokenizer& tokenizer = service.engine()->tokenizer();
  auto format = std::make_unique<LlamaAnswer>(
      tokenizer, LlamaAnswer::Params{.model = service.model_name(),
                                     .prompt = PromptText(tokenizer, *submission),
                                     .prompt_tokens = base::IntSize(request.prompt),
                                     .settings = SettingsJson(request, parsed->n_predict),
                                     .stops = request.stop,
                                     .stream = parsed->stream,
                                     .return_tokens = parsed->return_tokens,
                                     .probabilities = std::max(0, request.logprobs),
                                     .response_fields = std::move(parsed->response_fields)});
  return GenerationPlan{
      .submission = *std::move(submission), .format = std::move(format), .stream = parsed->stream};
}

Action Completion(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return PlanAnswer(service, head, ParseCompletion(request.body(), http::DefaultsOf(service)));
}

Action Infill(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return PlanAnswer(service, head, ParseInfill(request.body(), http::DefaultsOf(service)));
}

Action Properties(Service& service, const HttpRequest&, const ResponseHead& head) {
  const Status ready = service.Readiness();
  if (!ready.ok()) return http::FailureResponse(service, head, ready);
  const EngineStats stats = service.engine()->Stats();
  const text::Tokenizer& tokenizer = service.engine()->tokenizer();
  const model::Vocabulary& vocabulary = tokenizer.vocabulary();
  const auto text = [&](int id) { return id < 0 ? std::string() : tokenizer.TokenBytes(id, true); };
  const protocol::RequestDefaults defaults = http::DefaultsOf(service);
  const Request request{.prompt = {}, .sampling = defaults.sampling, .stop = {}};
  const int limit = defaults.max_tokens > 0 ? defaults.max_tokens : -1;
  return http::JsonResponse(
      head, 200,
      Json::Object{
          {"default_generation_settings",
           Json::Object{{"n_ctx", stats.context_length}, {"params", SettingsJson(request, limit)}}},
          {"total_slots", stats.sequences_max},
          {"model_alias", service.model_name()},
          // The value is only the file's name, so that clients do not learn its folder.
          {"model_path", std::filesystem::path(stats.model_path).filename().string()},
          {"modalities", Json::Object{{"vision", false}, {"audio", false}}},
          {"chat_template", vocabulary.chat_template},
          {"chat_template_caps", Json::Object{{"supports_tools", service.chat() != nullptr},
                                              {"supports_tool_calls", service.chat() != nullptr}}},
          {"bos_token", text(vocabulary.bos)},
          {"eos_token", text(vocabulary.eos)},
          {"build_info", "thermocline"}});
}

Action Slots(Service& service, const HttpRequest& request, const ResponseHead& head) {
  const Status ready = service.Readiness();
  if (!ready.ok()) return http::FailureResponse(service, head, ready);
  const EngineStats stats = service.engine()->Stats();
  const bool full = stats.running >= stats.sequences_max;
  const std::string target(request.target());
  if (full && target.find("fail_on_no_slot=1") != std::string::npos)
    return http::FailureResponse(service, head, base::Unavailable("no slot is available"));
  Json::Array slots;
  for (int id = 0; id < stats.sequences_max; ++id)
    slots.push_back(Json::Object{{"id", id},
                                 {"n_ctx", stats.context_length},
                                 {"speculative", stats.spec.used},
                                 {"is_processing", id < stats.running}});
  return http::JsonResponse(head, 200, Json(std::move(slots)));
}

// The adapters by number, with the scales of requests that choose none.
Action ListAdapters(Service& service, const HttpRequest&, const ResponseHead& head) {
  const Status ready = service.Readiness();
  if (!ready.ok()) return http::FailureResponse(service, head, ready);
  Json::Array list;
  std::size_t id = 0;
  for (const AdapterChoice& each : service.engine()->adapters()) {
    const std::size_t number = id++;
    if (!head.models.Allow({each.name})) continue;
    list.push_back(Json::Object{
        {"id", number},
        {"name", each.name},
        {"path", std::filesystem::path(each.path).lexically_normal().filename().string()},
        {"scale", each.scale}});
  }
  return http::JsonResponse(head, 200, Json(std::move(list)));
}

Action Health(Service& service, const HttpRequest&, const ResponseHead& head) {
  const Status ready = service.Readiness();
  if (!ready.ok()) return http::FailureResponse(service, head, ready);
  return http::JsonResponse(head, 200, Json::Object{{"status", "ok"}});
}

// /embeddings uses OpenAI's format if the body does.
Action Embeddings(Service& service, const HttpRequest& request, const ResponseHead& head) {
  using Dialect = protocol::EmbeddingDialect;
  const bool plural = http::PathOf(request.target()).starts_with("/embeddings");
  return http::PlanEmbeddings(service, request, head, plural ? Dialect::kByField : Dialect::kLlama);
}

// POST /models/load and /models/unload of llama-server's router.
Action LoadOrUnload(Service& service, const HttpRequest& request, const ResponseHead& head,
                    bool load) {
  if (!http::MayRule(service, head))
    return http::RefusalResponse(service, head,
                                 base::PermissionDenied("only an operator's key loads models and "
                                                        "puts them to sleep; a request for a model "
                                                        "wakes it")
                                     .WithReason(Reason::kForbidden));
  const auto body = protocol::ParseBody(request.body());
  if (!body.ok()) return http::RefusalResponse(service, head, body.status());
  protocol::Fields fields(*body);
  const std::string name = fields.String("model", "");
  fields.CheckUnknown(service.reloadable()->config.strict_fields);
  if (fields.ok() && name.empty()) fields.Fail("model", "'model' must name a model");
  if (!fields.ok()) return http::RefusalResponse(service, head, fields.status());
  const Status known = server::CheckListed(service, name, head.models);
  if (!known.ok()) return http::RefusalResponse(service, head, known);
  server::ServedModels* models = service.models();
  if (models == nullptr || !models->several())
    return http::RefusalResponse(
        service, head,
        base::FailedPrecondition("this server has one model, which stays loaded; `models` in the "
                                 "configuration names several"));
  const auto held = models->Hold(name, server::ServedModels::Purpose::kLook, head.models);
  if (held == nullptr)  // the list has changed meanwhile
    return http::RefusalResponse(service, head,
                                 base::NotFound("the model '", name, "' is not served any more"));
  if (load) {
    models->Wake(held, {.woken = [](const Status&) {}}, server::ServedModels::Purpose::kLook);
  } else if (!models->Sleep(*held)) {
    return http::RefusalResponse(
        service, head, base::FailedPrecondition("gRPC serves the first model, which stays loaded"));
  }
  return http::JsonResponse(head, 200, Json::Object{{"success", true}});
}

Action LoadModel(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return LoadOrUnload(service, request, head, true);
}

Action UnloadModel(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return LoadOrUnload(service, request, head, false);
}

constexpr http::Route kRoutes[] = {
    {"POST", "/models/load", LoadModel, true},
    {"POST", "/models/unload", UnloadModel, true},
    {"POST", "/completion", Completion},
    {"POST", "/infill", Infill},
    {"GET", "/props", Properties},
    {"GET", "/slots", Slots},
    {"GET", "/lora-adapters", ListAdapters},
    {"GET", "/health", Health},
    {"POST", "/embedding", Embeddings},
    {"POST", "/tokenize", Tokenize},
    {"POST", "/detokenize", Detokenize},
    {"GET", "/tokenizer_info", TokenizerInfo},
    {"POST", "/apply-template", ApplyTemplate},
};
constexpr http::PathAlias kAliases[] = {
    {"/embeddings", "/embedding"},
    {"/v1/health", "/health"},
    {"/v1/tokenize", "/tokenize"},
    {"/v1/detokenize", "/detokenize"},
    {"/v1/apply-template", "/apply-template"},
};

}  // namespace

const http::Protocol& Routes() {
  static const http::Protocol protocol = {.routes = kRoutes, .aliases = kAliases};
  return protocol;
}

}  // namespace thermocline::llama
