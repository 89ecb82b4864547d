#include "server/openai/routes.h"

#include "engine/text/tokenizer.h"
#include "server/http/plan_parts.h"
#include "server/http/refusal.h"
#include "server/openai/chat_answer.h"
#include "server/openai/chat_request.h"
#include "server/openai/completion_answer.h"
#include "server/openai/completion_request.h"
#include "server/openai/count_routes.h"
#include "server/openai/responses_answer.h"
#include "server/openai/responses_request.h"
#include "server/protocol/embedding_answer.h"

namespace thermocline::openai {
namespace {

using http::Action;
using http::GenerationPlan;
using http::HttpRequest;
using http::ResponseHead;
using server::Service;
using server::Submission;

Result<GenerationPlan> PlanOfChat(Service& service, const std::string& body,
                                  const ResponseHead& head) {
  ASSIGN_OR_RETURN(ChatRequest parsed, ParseChatRequest(body, http::DefaultsOf(service)));
  ASSIGN_OR_RETURN(Submission submission,
                   http::SubmitEncoded(service, head, std::move(parsed.generation)));
  const server::GenerationRequest& full = submission.generation_request();
  const auto& conversation = std::get<server::Conversation>(full.prompts[0]);
  auto format = std::make_unique<ChatAnswer>(
      MakeAnswerHead(true, service.model_name(), parsed.include_usage, full.default_max_tokens),
      service.engine()->tokenizer(),
      ChatAnswer::Params{.choices = full.choices,
                         .logprobs = full.request.logprobs,
                         .named_tool = !conversation.tools.choice.name.empty()});
  return GenerationPlan{
      .submission = std::move(submission), .format = std::move(format), .stream = parsed.stream};
}

using Echoes = std::vector<CompletionAnswer::Echo>;

Echoes EchoesOf(const Service& service, const Submission& submission) {
  Echoes echoes;
  const std::vector<server::Prompt>& prompts = submission.generation_request().prompts;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto* text = std::get_if<std::string>(&prompts[i]);
    const std::vector<int>& tokens = submission.requests()[i].prompt;
    echoes.push_back(
        {.text = text != nullptr ? *text : service.engine()->tokenizer().Decode(tokens, true),
         .bos_added = submission.bos_added(i)});
  }
  return echoes;
}

Result<GenerationPlan> PlanOfCompletion(Service& service, const std::string& body,
                                        const ResponseHead& head) {
  ASSIGN_OR_RETURN(CompletionRequest parsed,
                   ParseCompletionRequest(body, http::DefaultsOf(service)));
  ASSIGN_OR_RETURN(Submission submission,
                   http::SubmitEncoded(service, head, std::move(parsed.generation)));
  auto echoes = parsed.echo ? EchoesOf(service, submission) : Echoes();
  auto format = std::make_unique<CompletionAnswer>(
      MakeAnswerHead(false, service.model_name(), parsed.include_usage,
                     submission.generation_request().default_max_tokens),
      service.engine()->tokenizer(), submission, std::move(echoes), parsed.stream);
  return GenerationPlan{
      .submission = std::move(submission), .format = std::move(format), .stream = parsed.stream};
}

Result<GenerationPlan> PlanOfResponses(Service& service, const std::string& body,
                                       const ResponseHead& head) {
  ASSIGN_OR_RETURN(ResponsesRequest parsed, ParseResponsesRequest(body, http::DefaultsOf(service)));
  ASSIGN_OR_RETURN(Submission submission,
                   http::SubmitEncoded(service, head, std::move(parsed.generation)));
  auto format = std::make_unique<ResponsesAnswer>(
      service.engine()->tokenizer(),
      ResponsesAnswer::Params{
          .model = service.model_name(),
          .echo = std::move(parsed.echo),
          .logprobs = submission.generation_request().request.logprobs,
          .default_max_tokens = submission.generation_request().default_max_tokens});
  return GenerationPlan{
      .submission = std::move(submission), .format = std::move(format), .stream = parsed.stream};
}

Result<GenerationPlan> PlanOfRerank(Service& service, const std::string& body,
                                    const ResponseHead& head) {
  ASSIGN_OR_RETURN(protocol::RerankRequest parsed,
                   protocol::ParseRerankRequest(body, service.pooling(),
                                                service.reloadable()->config.strict_fields));
  auto format = std::make_unique<protocol::RerankAnswer>(service.model_name(), parsed);
  ASSIGN_OR_RETURN(Submission submission,
                   http::SubmitEncoded(service, head, std::move(parsed.generation)));
  return GenerationPlan{.submission = std::move(submission), .format = std::move(format)};
}

Action PlanChat(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return http::PlanOrRefusal(service, head, PlanOfChat(service, request.body(), head));
}

Action PlanCompletion(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return http::PlanOrRefusal(service, head, PlanOfCompletion(service, request.body(), head));
}

Action PlanResponses(Service& service, const HttpRequest& request, const ResponseHead& head) {
  auto plan = PlanOfResponses(service, request.body(), head);
  // Codex retries a request six times after a 404.
  const bool no_model = !plan.ok() && plan.status().reason() == Reason::kModelNotFound;
  Action action = http::PlanOrRefusal(service, head, std::move(plan));
  if (no_model) std::get<http::HttpResponse>(action).result(400);
  return action;
}

Action PlanEmbeddings(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return http::PlanEmbeddings(service, request, head, protocol::EmbeddingDialect::kOpenAi);
}

Action PlanRerank(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return http::PlanOrRefusal(service, head, PlanOfRerank(service, request.body(), head));
}

Action NoStoredResponse(Service&, const HttpRequest&, const ResponseHead& head) {
  return http::ErrorResponse(
      head,
      protocol::ClientError(404, "not_found", "nothing is stored here: responses are not kept"));
}

constexpr http::Route kRoutes[] = {
    {"POST", "/v1/chat/completions", PlanChat},
    {"POST", "/v1/completions", PlanCompletion},
    {"POST", "/v1/responses", PlanResponses},
    {"POST", "/v1/responses/input_tokens", CountInput},
    {"GET", "/v1/responses/{id}", NoStoredResponse},
    {"DELETE", "/v1/responses/{id}", NoStoredResponse},
    {"POST", "/v1/responses/{id}", NoStoredResponse},
    {"POST", "/v1/embeddings", PlanEmbeddings},
    {"POST", "/v1/rerank", PlanRerank},
    {"POST", "/v2/rerank", PlanRerank},
    {"POST", "/v1/tokens/count", CountTokens},
};

// For clients whose base URL lacks "/v1".
constexpr http::PathAlias kAliases[] = {
    {"/chat/completions", "/v1/chat/completions"},
    {"/responses", "/v1/responses"},
    {"/rerank", "/v1/rerank"},
    {"/reranking", "/v1/rerank"},
    {"/v1/reranking", "/v1/rerank"},
};

}  // namespace

const http::Protocol& Routes() {
  static const http::Protocol protocol = {.routes = kRoutes, .aliases = kAliases};
  return protocol;
}

}  // namespace thermocline::openai
