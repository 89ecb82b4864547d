#include "server/http/generate_routes.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "engine/text/tokenizer.h"
#include "server/core/prompt.h"
#include "server/http/prompts.h"
#include "server/http/refusal.h"
#include "server/openai/chat_request.h"

namespace thermocline::http {
namespace {

using openai::ApiError;
using server::Service;

HttpResponse Refuse(Service& service, const ResponseHead& head, const ApiError& error) {
  service.metrics().RequestRejected(error.code == "context_length_exceeded" ? "too_long"
                                                                            : "bad_request");
  return ErrorResponse(head, error);
}

// From `arrived` on; 0 = none. A request may ask for less time than the server allows, not for
// more.
std::optional<std::chrono::steady_clock::time_point> DeadlineOf(
    std::chrono::steady_clock::time_point arrived, double allowed_s, double asked_s) {
  double seconds = asked_s;
  if (allowed_s > 0 && (asked_s == 0 || asked_s > allowed_s)) seconds = allowed_s;
  if (seconds == 0) return std::nullopt;
  using Steady = std::chrono::steady_clock;
  return arrived +
         std::chrono::duration_cast<Steady::duration>(std::chrono::duration<double>(seconds));
}

// What comes before any work for `asked`: a place in the queue, or an answer that refuses. A
// refused client has cost its body's parsing, no template and no tokenizing.
std::variant<Engine::Admission, HttpResponse> Admit(Service& service, const ResponseHead& head,
                                                    openai::CommonRequest& asked, int prompts,
                                                    std::size_t prompt_bytes) {
  if (!asked.model.empty() && asked.model != service.model_name()) {
    service.metrics().RequestRejected("bad_request");
    return UnknownModel(service, head, asked.model);
  }
  if (const Status not_ready = NotReady(service); !not_ready.ok())
    return RefusalResponse(service, head, not_ready);
  const Status known = server::CheckTokens(service, asked.request.stop_tokens);
  if (!known.ok()) return Refuse(service, head, openai::FromStatus(known, "stop_token_ids"));
  asked.request.deadline =
      DeadlineOf(head.arrived, service.live()->config.request_timeout_s, asked.timeout_s);
  auto admission = service.engine()->Admit({.requests = prompts * asked.choices,
                                            .prompt_bytes = prompt_bytes,
                                            .deadline = asked.request.deadline,
                                            .tenant = head.tenant});
  if (admission.status().code() == StatusCode::kInvalidArgument)
    return Refuse(service, head, openai::FromStatus(admission.status(), "n"));
  if (!admission.ok()) return RefusalResponse(service, head, admission.status());
  return *std::move(admission);
}

std::size_t TextBytes(const Json& value) {
  if (value.is_string()) return value.as_string().size();
  std::size_t bytes = 0;
  if (value.is_array()) {
    for (const Json& item : value.as_array()) bytes += TextBytes(item);
  } else if (value.is_object()) {
    for (const auto& [key, item] : value.as_object()) bytes += TextBytes(item);
  }
  return bytes;
}

// Of the longest prompt. Ids count as texts of so many tokens would.
std::size_t PromptBytes(const std::vector<openai::Prompt>& prompts) {
  constexpr std::size_t kBytesPerToken = 4;
  std::size_t bytes = 0;
  for (const openai::Prompt& prompt : prompts) {
    const auto* ids = std::get_if<std::vector<int>>(&prompt);
    bytes = std::max(bytes, ids != nullptr ? ids->size() * kBytesPerToken
                                           : std::get<std::string>(prompt).size());
  }
  return bytes;
}

openai::RequestDefaults DefaultsOf(const Service& service) {
  return {.sampling = service.config().sampling, .max_tokens = service.config().max_tokens};
}

}  // namespace

Action PlanChat(Service& service, const HttpRequest& request, const ResponseHead& head) {
  auto parsed = openai::ParseChatRequest(request.body(), DefaultsOf(service));
  if (const auto* error = std::get_if<ApiError>(&parsed)) return Refuse(service, head, *error);
  auto& asked = std::get<openai::ChatRequest>(parsed);
  auto admitted = Admit(service, head, asked, 1, TextBytes(asked.conversation));
  if (auto* refusal = std::get_if<HttpResponse>(&admitted)) return std::move(*refusal);
  auto prompt = ChatPrompt(service, asked.conversation);
  if (const auto* error = std::get_if<ApiError>(&prompt)) return Refuse(service, head, *error);
  asked.request.prompt = std::move(std::get<EncodedPrompt>(prompt).tokens);
  GenerationPlan plan{
      .choices = asked.choices,
      .admission = std::get<Engine::Admission>(std::move(admitted)),
      .answer = openai::MakeAnswerHead(true, service.model_name(), asked.include_usage),
      .stream = asked.stream};
  plan.requests.push_back(std::move(asked.request));
  return plan;
}

Action PlanCompletion(Service& service, const HttpRequest& request, const ResponseHead& head) {
  auto parsed = openai::ParseCompletionRequest(request.body(), DefaultsOf(service));
  if (const auto* error = std::get_if<ApiError>(&parsed)) return Refuse(service, head, *error);
  auto& asked = std::get<openai::CompletionRequest>(parsed);
  auto admitted = Admit(service, head, asked, static_cast<int>(asked.prompts.size()),
                        PromptBytes(asked.prompts));
  if (auto* refusal = std::get_if<HttpResponse>(&admitted)) return std::move(*refusal);
  GenerationPlan plan{
      .choices = asked.choices,
      .admission = std::get<Engine::Admission>(std::move(admitted)),
      .answer = openai::MakeAnswerHead(false, service.model_name(), asked.include_usage),
      .stream = asked.stream};
  for (const openai::Prompt& prompt : asked.prompts) {
    auto encoded = RawPrompt(service, prompt);
    if (const auto* error = std::get_if<ApiError>(&encoded)) return Refuse(service, head, *error);
    auto& [tokens, bos_added] = std::get<EncodedPrompt>(encoded);
    if (asked.echo) {
      const auto* text = std::get_if<std::string>(&prompt);
      plan.echoes.push_back(
          {.text = text != nullptr ? *text : service.engine()->tokenizer().Decode(tokens, true),
           .bos_added = bos_added});
    }
    plan.requests.push_back(asked.request);
    plan.requests.back().prompt = std::move(tokens);
  }
  return plan;
}

}  // namespace thermocline::http
