#include "server/routes/models.h"

#include <charconv>
#include <ctime>

#include "server/anthropic/error.h"
#include "server/http/access.h"
#include "server/http/refusal.h"

namespace thermocline::routes {
namespace {

using http::Action;
using http::HttpRequest;
using http::ResponseHead;
using server::Service;

// Decodes percent escapes ("%2F" is "/") and keeps malformed ones.
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

// Includes, once the model is loaded, the context and the default sampling. The context has the
// names of llama-server, vLLM and others.
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
  for (const std::string& name : service.model_names()) {
    if (name == "*") continue;
    list.push_back(anthropic ? AnthropicModelJson(service, name) : ModelJson(service, name));
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
  const std::string name =
      UrlDecoded(http::PathOf(request.target()).substr(std::string_view("/v1/models/").size()));
  const Status known = server::CheckModel(service, base::ReplaceInvalidUtf8(name));
  if (!known.ok()) return http::FailureResponse(service, head, known);
  const bool anthropic = head.errors == &anthropic::kErrors;
  return http::JsonResponse(
      head, 200, anthropic ? AnthropicModelJson(service, name) : ModelJson(service, name));
}

}  // namespace thermocline::routes
