#include "server/routes/models.h"

#include <ctime>

#include "engine/api/sampling_table.h"
#include "server/anthropic/error.h"
#include "server/core/held_model.h"
#include "server/core/requested_model.h"
#include "server/http/access.h"
#include "server/http/refusal.h"

namespace thermocline::routes {
namespace {

using http::Action;
using http::HttpRequest;
using http::ResponseHead;
using server::Service;

// The names are llama-server's.
std::string StatusOf(const Service& service) {
  switch (service.state()) {
    case server::ServiceState::kReady:
    case server::ServiceState::kDraining:
      return "loaded";
    case server::ServiceState::kSleeping:
      return "sleeping";
    case server::ServiceState::kLoading:
      return "loading";
    case server::ServiceState::kFailed:
      break;
  }
  return "failed";
}

// Includes, once the model is loaded, the context and the default sampling. The context has the
// names of llama-server, vLLM and others.
Json ModelJson(const Service& service, const std::string& name) {
  Json::Object model{
      {"id", name}, {"object", "model"}, {"created", service.started_at()}, {"owned_by", "local"}};
  if (service.models() != nullptr && service.models()->several())
    model.emplace_back("status", Json::Object{{"value", StatusOf(service)}});
  const auto facts = service.facts();
  if (service.engine() == nullptr && facts != nullptr)
    model.emplace_back("meta", Json::Object{{"n_ctx_train", facts->context_length_trained},
                                            {"n_params", facts->num_parameters},
                                            {"size", facts->bytes}});
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
  for (const AdapterChoice& each : service.engine()->adapters())  // as vLLM shows them
    if (each.name == name) model.emplace_back("parent", service.model_name());
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

// The format of Anthropic's API, for its clients.
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

}  // namespace

Action Models(Service& service, const HttpRequest&, const ResponseHead& head) {
  const bool anthropic = head.errors == &anthropic::kErrors;
  Json::Array list;
  Json first, last;
  for (const auto& each : server::HoldAllOf(service, head.models))
    for (const std::string& name : each->model_names(head.models)) {
      if (name == "*") continue;
      list.push_back(anthropic ? AnthropicModelJson(*each, name) : ModelJson(*each, name));
      if (first.is_null()) first = name;
      last = name;
    }
  if (anthropic)
    return http::JsonResponse(head, 200,
                              Json::Object{{"data", std::move(list)},
                                           {"has_more", false},
                                           {"first_id", std::move(first)},
                                           {"last_id", std::move(last)}});
  return http::JsonResponse(head, 200, Json::Object{{"object", "list"}, {"data", std::move(list)}});
}

Action Model(Service& service, const HttpRequest& request, const ResponseHead& head) {
  const std::string name = server::UrlDecoded(
      http::PathOf(request.target()).substr(std::string_view("/v1/models/").size()));
  const Status known = server::CheckListed(service, base::ReplaceInvalidUtf8(name), head.models);
  if (!known.ok()) return http::FailureResponse(service, head, known);
  const bool anthropic = head.errors == &anthropic::kErrors;
  const auto held =
      service.models() == nullptr
          ? nullptr
          : service.models()->Hold(name, server::ServedModels::Purpose::kLook, head.models);
  const Service& found = held == nullptr ? service : *held;
  return http::JsonResponse(head, 200,
                            anthropic ? AnthropicModelJson(found, name) : ModelJson(found, name));
}

}  // namespace thermocline::routes
