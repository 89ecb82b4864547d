#include "server/routes/status_route.h"

#include "server/http/plan_parts.h"
#include "server/openai/completion_request.h"

namespace thermocline::routes {
namespace {

Json ToNumber(std::size_t n) { return static_cast<std::int64_t>(n); }

// The device that computes the hot neurons, and the reason if it is not a GPU.
Json DeviceJson(const EngineStats& stats) {
  const HotStats& hot = stats.hot;
  return Json::Object{
      {"name", hot.device},
      {"fallback", hot.fallback.empty() ? Json() : Json(hot.fallback)},
      {"hot_tier", hot.used},
      {"hot_bytes", hot.bytes},
      {"hot_neurons", hot.neurons},
      {"neurons", hot.neurons_all},
      {"predicted_tokens_per_s", hot.used ? Json(hot.predicted_tokens_per_s) : Json()},
      {"planned_share", hot.planned_share > 0 ? Json(hot.planned_share) : Json()},
      {"threads", stats.threads},
      {"cpu_isa", stats.cpu_isa}};
}

// The modes of the feed-forward networks: each layer's at its last token, and the modes offered to
// requests.
Json ModesJson(const EngineStats& stats) {
  Json::Array layers, offered;
  for (const FfnLayerStats& layer : stats.ffn) layers.emplace_back(FfnModeName(layer.mode));
  for (const FfnMode mode : stats.ffn_offered) offered.emplace_back(FfnModeName(mode));
  const bool shadow = stats.audit_shadow != FfnMode::kDense;
  return Json::Object{{"layers", std::move(layers)},
                      {"automatic", stats.ffn_automatic},
                      {"offered", std::move(offered)},
                      {"audit_shadow", shadow ? Json(FfnModeName(stats.audit_shadow)) : Json()}};
}

Json FlashJson(const EngineStats::Flash& flash) {
  if (!flash.used) return Json();
  return Json::Object{{"bundle", flash.bundle},
                      {"method", flash.method},
                      {"cache_bytes", ToNumber(flash.cache_bytes)}};
}

// Null if the model is not a mixture of experts. uses: [layers][experts] of decoded tokens since
// the start, for operators: they tell which texts others have sent.
Json ExpertsJson(const ExpertStats& stats, bool with_uses) {
  if (stats.experts == 0) return Json();
  if (!with_uses) return Json::Object{{"experts", stats.experts}, {"per_token", stats.used}};
  Json::Array layers;
  for (int layer = 0; layer < stats.layers(); ++layer) {
    Json::Array uses;
    for (const std::int64_t count : stats.of(layer)) uses.push_back(count);
    layers.push_back(std::move(uses));
  }
  return Json::Object{{"experts", stats.experts},
                      {"per_token", stats.used},
                      {"uses", std::move(layers)},
                      {"guessed", stats.guessed},
                      {"guessed_right", stats.guessed_right}};
}

// Null if speculation is not configured.
Json SpeculationJson(const SpecStats& spec) {
  if (!spec.used) return Json();
  return Json::Object{{"mode", spec.mode},
                      {"mode_now", spec.mode_now},
                      {"source", spec.source},
                      {"draft", spec.draft.empty() ? Json() : Json(spec.draft)},
                      {"fallback", spec.fallback.empty() ? Json() : Json(spec.fallback)},
                      {"not_ahead", spec.not_ahead.empty() ? Json() : Json(spec.not_ahead)},
                      {"drafts", spec.drafts},
                      {"draft_tokens", spec.draft_tokens},
                      {"accepted_tokens", spec.accepted_tokens},
                      {"plain_steps", spec.plain_steps},
                      {"draft_length", spec.draft_length},
                      {"acceptance", spec.acceptance}};
}

// The prefix cache by tier; `flash` is null without prefix_cache.path.
Json PrefixCacheJson(const EngineStats& stats) {
  const EngineStats::PrefixFlash& flash = stats.prefix_flash;
  Json::Object on_flash{{"bytes", flash.bytes},
                        {"bytes_max", flash.bytes_max},
                        {"blocks", flash.blocks},
                        {"hit_tokens", flash.hit_tokens},
                        {"read_only", flash.read_only}};
  return Json::Object{{"memory", Json::Object{{"bytes", stats.prefix_cache.bytes},
                                              {"bytes_max", stats.prefix_cache.bytes_max},
                                              {"hit_tokens", stats.prefix_cache.hit_tokens}}},
                      {"flash", flash.used ? Json(std::move(on_flash)) : Json()}};
}

Json QueueJson(const Engine& engine, const EngineStats& stats) {
  return Json::Object{{"capacity", stats.queue_capacity},
                      {"prefill_tokens", stats.queue_prefill_tokens},
                      {"prefill_tokens_max", stats.queue_prefill_tokens_max},
                      {"preemptions", stats.preemptions},
                      {"wait_s", engine.WaitS()}};
}

// The limits for one request.
Json LimitsJson(const server::ServerConfig& config) {
  return Json::Object{
      {"body_bytes", config.body_bytes_max},   {"connections", config.connections_max},
      {"request_s", config.request_timeout_s}, {"choices", protocol::kChoicesPerPromptMax},
      {"prompts", openai::kPromptsMax},        {"top_logprobs", kLogprobsMax}};
}

}  // namespace

http::HttpResponse AnswerStatus(server::Service& service, const http::ResponseHead& head) {
  Json::Object status{{"state", server::ServiceStateName(service.state())},
                      {"model", service.model_name()},
                      {"started", service.started_at()}};
  if (const Engine* engine = service.engine()) {
    const EngineStats stats = engine->Stats();
    status.emplace_back("architecture", stats.architecture);
    status.emplace_back("context_length", stats.context_length);
    status.emplace_back("device", DeviceJson(stats));
    status.emplace_back("memory", Json::Object{{"budget_bytes", ToNumber(stats.memory_budget)},
                                               {"planned_bytes", ToNumber(stats.memory_planned)},
                                               {"weight_bytes", ToNumber(stats.weight_bytes)}});
    status.emplace_back("modes", ModesJson(stats));
    status.emplace_back("flash", FlashJson(stats.flash));
    status.emplace_back("prefix_cache", PrefixCacheJson(stats));
    status.emplace_back("experts", ExpertsJson(stats.experts, http::MayRule(service, head)));
    status.emplace_back("speculation", SpeculationJson(stats.spec));
    status.emplace_back("running", stats.running);
    status.emplace_back("paused", stats.paused);
    status.emplace_back("waiting", stats.waiting);
    status.emplace_back("queue", QueueJson(*engine, stats));
    status.emplace_back("limits", LimitsJson(service.reloadable()->config));
  }
  return http::JsonResponse(head, 200, Json(std::move(status)));
}

}  // namespace thermocline::routes
