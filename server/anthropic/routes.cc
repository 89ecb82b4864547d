#include "server/anthropic/routes.h"

#include "engine/base/index.h"
#include "server/anthropic/error.h"
#include "server/anthropic/messages_answer.h"
#include "server/anthropic/messages_request.h"
#include "server/core/prompt.h"
#include "server/http/field_answer.h"
#include "server/http/plan_parts.h"

namespace thermocline::anthropic {
namespace {

using http::Action;
using http::GenerationPlan;
using http::HttpRequest;
using http::ResponseHead;
using protocol::Fields;
using server::Service;
using server::Submission;

Result<GenerationPlan> PlanOfMessages(Service& service, const std::string& body,
                                      const ResponseHead& head) {
  ASSIGN_OR_RETURN(MessagesRequest parsed, ParseMessagesRequest(body, http::DefaultsOf(service)));
  ASSIGN_OR_RETURN(Submission submission,
                   http::SubmitEncoded(service, head, std::move(parsed.generation)));
  const Request& request = submission.requests()[0];
  auto format = std::make_unique<MessagesAnswer>(
      MessagesAnswer::Params{.model = service.model_name(),
                             .prompt_tokens = base::IntSize(request.prompt),
                             .max_tokens = request.max_tokens,
                             .stops = request.stop});
  return GenerationPlan{
      .submission = std::move(submission), .format = std::move(format), .stream = parsed.stream};
}

Action PlanMessages(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return http::PlanOrRefusal(service, head, PlanOfMessages(service, request.body(), head));
}

Result<Json> CountMessagesFields(Service& service, Fields& fields, const std::string& tenant) {
  const server::Conversation conversation = ReadMessagesConversation(fields);
  RETURN_IF_ERROR(fields.status());
  const auto prompt = server::EncodeChat(service, conversation, server::PromptLimit::kNone,
                                         server::AnswerOwner(service, tenant));
  if (!prompt.ok()) return prompt.status().WithField("messages");
  return Json(Json::Object{{"input_tokens", prompt->tokens.size()}});
}

Action CountMessages(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return http::AnswerFields(service, request, head, http::OtherFields::kOfRequest,
                            [&service, tenant = head.tenant](Fields& fields) {
                              return CountMessagesFields(service, fields, tenant);
                            });
}

// Claude Code uses this route to check for its server.
Action Hello(Service&, const HttpRequest&, const ResponseHead& head) {
  return http::JsonResponse(head, 200, Json::Object{{"message", "hello"}});
}

// Claude Code resends its usage events until a server accepts them. They are discarded.
Action DropEvents(Service&, const HttpRequest&, const ResponseHead& head) {
  return http::JsonResponse(head, 200, Json::Object{});
}

constexpr http::Route kRoutes[] = {
    {"POST", "/v1/messages", PlanMessages},
    {"POST", "/v1/messages/count_tokens", CountMessages},
    {"GET", "/api/hello", Hello},
    {"POST", "/api/event_logging/batch", DropEvents},
};
constexpr std::string_view kErrorPaths[] = {"/v1/messages"};

}  // namespace

const http::Protocol& Routes() {
  static const http::Protocol protocol = {.routes = kRoutes,
                                          .errors = &kErrors,
                                          .error_paths = kErrorPaths,
                                          .error_header = "anthropic-version"};
  return protocol;
}

}  // namespace thermocline::anthropic
