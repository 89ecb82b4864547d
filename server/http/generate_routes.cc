#include "server/http/generate_routes.h"

#include "engine/base/index.h"
#include "engine/text/tokenizer.h"
#include "server/anthropic/messages_answer.h"
#include "server/anthropic/messages_request.h"
#include "server/http/gate.h"
#include "server/http/plan_parts.h"
#include "server/http/refusal.h"
#include "server/openai/chat_answer.h"
#include "server/openai/chat_request.h"
#include "server/openai/completion_answer.h"
#include "server/openai/completion_request.h"
#include "server/openai/responses_answer.h"
#include "server/openai/responses_request.h"
#include "server/protocol/embedding_answer.h"

namespace thermocline::http {
namespace {

using server::Service;
using server::Submission;

Result<GenerationPlan> PlanOfChat(Service& service, const std::string& body,
                                  const ResponseHead& head) {
  ASSIGN_OR_RETURN(openai::ChatRequest asked, openai::ParseChatRequest(body, DefaultsOf(service)));
  ASSIGN_OR_RETURN(Submission submission, SubmitEncoded(service, head, std::move(asked.asked)));
  const server::Asked& full = submission.asked();
  const auto& conversation = std::get<server::Conversation>(full.prompts[0]);
  auto format = std::make_unique<openai::ChatAnswer>(
      openai::MakeAnswerHead(true, service.model_name(), asked.include_usage,
                             full.default_max_tokens),
      service.engine()->tokenizer(),
      openai::ChatAnswer::Params{.choices = full.choices,
                                 .logprobs = full.request.logprobs,
                                 .named_tool = !conversation.tools.choice.name.empty()});
  return GenerationPlan{
      .submission = std::move(submission), .format = std::move(format), .stream = asked.stream};
}

using Echoes = std::vector<openai::CompletionAnswer::Echo>;

Echoes EchoesOf(const Service& service, const Submission& submission) {
  Echoes echoes;
  const std::vector<server::Prompt>& prompts = submission.asked().prompts;
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
  ASSIGN_OR_RETURN(openai::CompletionRequest asked,
                   openai::ParseCompletionRequest(body, DefaultsOf(service)));
  ASSIGN_OR_RETURN(Submission submission, SubmitEncoded(service, head, std::move(asked.asked)));
  auto echoes = asked.echo ? EchoesOf(service, submission) : Echoes();
  auto format = std::make_unique<openai::CompletionAnswer>(
      openai::MakeAnswerHead(false, service.model_name(), asked.include_usage,
                             submission.asked().default_max_tokens),
      service.engine()->tokenizer(), submission, std::move(echoes), asked.stream);
  return GenerationPlan{
      .submission = std::move(submission), .format = std::move(format), .stream = asked.stream};
}

Result<GenerationPlan> PlanOfResponses(Service& service, const std::string& body,
                                       const ResponseHead& head) {
  ASSIGN_OR_RETURN(openai::ResponsesRequest asked,
                   openai::ParseResponsesRequest(body, DefaultsOf(service)));
  ASSIGN_OR_RETURN(Submission submission, SubmitEncoded(service, head, std::move(asked.asked)));
  auto format = std::make_unique<openai::ResponsesAnswer>(
      service.engine()->tokenizer(),
      openai::ResponsesAnswer::Params{.model = service.model_name(),
                                      .echo = std::move(asked.echo),
                                      .logprobs = submission.asked().request.logprobs,
                                      .default_max_tokens = submission.asked().default_max_tokens});
  return GenerationPlan{
      .submission = std::move(submission), .format = std::move(format), .stream = asked.stream};
}

Result<GenerationPlan> PlanOfMessages(Service& service, const std::string& body,
                                      const ResponseHead& head) {
  ASSIGN_OR_RETURN(anthropic::MessagesRequest asked,
                   anthropic::ParseMessagesRequest(body, DefaultsOf(service)));
  ASSIGN_OR_RETURN(Submission submission, SubmitEncoded(service, head, std::move(asked.asked)));
  const Request& request = submission.requests()[0];
  auto format = std::make_unique<anthropic::MessagesAnswer>(
      anthropic::MessagesAnswer::Params{.model = service.model_name(),
                                        .prompt_tokens = base::IntSize(request.prompt),
                                        .max_tokens = request.max_tokens,
                                        .stops = request.stop});
  return GenerationPlan{
      .submission = std::move(submission), .format = std::move(format), .stream = asked.stream};
}

Result<GenerationPlan> PlanOfEmbeddings(Service& service, const std::string& body,
                                        const ResponseHead& head,
                                        protocol::EmbeddingDialect dialect) {
  ASSIGN_OR_RETURN(
      protocol::EmbeddingRequest asked,
      protocol::ParseEmbeddingRequest(body, service.pooling(), service.live()->config.strict_fields,
                                      nullptr, dialect));
  RETURN_IF_ERROR(CheckDimensions(service, asked.dimensions));
  auto format = std::make_unique<protocol::EmbeddingAnswer>(service.model_name(), asked);
  ASSIGN_OR_RETURN(Submission submission, SubmitEncoded(service, head, std::move(asked.asked)));
  return GenerationPlan{.submission = std::move(submission), .format = std::move(format)};
}

Result<GenerationPlan> PlanOfRerank(Service& service, const std::string& body,
                                    const ResponseHead& head) {
  ASSIGN_OR_RETURN(
      protocol::RerankRequest asked,
      protocol::ParseRerankRequest(body, service.pooling(), service.live()->config.strict_fields));
  auto format = std::make_unique<protocol::RerankAnswer>(service.model_name(), asked);
  ASSIGN_OR_RETURN(Submission submission, SubmitEncoded(service, head, std::move(asked.asked)));
  return GenerationPlan{.submission = std::move(submission), .format = std::move(format)};
}

Action PlanOrRefusal(Service& service, const ResponseHead& head, Result<GenerationPlan> plan) {
  if (!plan.ok()) return RefusalResponse(service, head, plan.status());
  return *std::move(plan);
}

}  // namespace

Action PlanChat(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return PlanOrRefusal(service, head, PlanOfChat(service, request.body(), head));
}

Action PlanCompletion(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return PlanOrRefusal(service, head, PlanOfCompletion(service, request.body(), head));
}

Action PlanResponses(Service& service, const HttpRequest& request, const ResponseHead& head) {
  auto plan = PlanOfResponses(service, request.body(), head);
  // Codex repeats a request six times that ends with 404.
  const bool no_model = !plan.ok() && plan.status().reason() == Reason::kModelNotFound;
  Action action = PlanOrRefusal(service, head, std::move(plan));
  if (no_model) std::get<HttpResponse>(action).result(400);
  return action;
}

Action PlanMessages(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return PlanOrRefusal(service, head, PlanOfMessages(service, request.body(), head));
}

Action PlanEmbeddings(Service& service, const HttpRequest& request, const ResponseHead& head) {
  using Dialect = protocol::EmbeddingDialect;
  return PlanOrRefusal(service, head,
                       PlanOfEmbeddings(service, request.body(), head, Dialect::kOpenAi));
}

Action PlanLlamaEmbeddings(Service& service, const HttpRequest& request, const ResponseHead& head) {
  using Dialect = protocol::EmbeddingDialect;
  const bool plural = PathOf(request.target()).starts_with("/embeddings");
  return PlanOrRefusal(service, head,
                       PlanOfEmbeddings(service, request.body(), head,
                                        plural ? Dialect::kByField : Dialect::kLlama));
}

Action PlanRerank(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return PlanOrRefusal(service, head, PlanOfRerank(service, request.body(), head));
}

}  // namespace thermocline::http
