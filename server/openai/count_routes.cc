#include "server/openai/count_routes.h"

#include "server/core/prompt.h"
#include "server/http/field_answer.h"
#include "server/openai/completion_request.h"
#include "server/openai/responses_input.h"
#include "server/protocol/chat_tokens.h"
#include "server/protocol/tool_fields.h"

namespace thermocline::openai {
namespace {

using http::Action;
using http::HttpRequest;
using http::ResponseHead;
using protocol::Fields;
using server::Service;

Result<std::size_t> Count(Service& service, const server::Prompt& prompt) {
  if (const auto* ids = std::get_if<std::vector<int>>(&prompt)) {
    RETURN_IF_ERROR(server::CheckTokens(service, *ids));
    return ids->size();
  }
  ASSIGN_OR_RETURN(const std::vector<int> tokens,
                   server::EncodeText(service, std::get<std::string>(prompt),
                                      {.limit = server::PromptLimit::kNone}));
  return tokens.size();
}

Json CountJson(std::size_t count) {
  return Json::Object{{"object", "token_count"}, {"prompt_tokens", count}};
}

Result<Json> CountFields(Service& service, Fields& fields) {
  const Json* value = fields.Find("prompt");
  if (value == nullptr) {
    ASSIGN_OR_RETURN(const std::vector<int> tokens, protocol::ChatTokens(service, fields));
    return CountJson(tokens.size());
  }
  const auto prompts = ReadPrompts(*value);
  if (!prompts.has_value())
    return base::InvalidArgument(
               "'prompt' must be a string, a list of token ids, or a list of either")
        .WithField("prompt");
  std::size_t count = 0;
  for (const server::Prompt& prompt : *prompts) {
    const auto tokens = Count(service, prompt);
    if (!tokens.ok()) return tokens.status().WithField("prompt");
    count += *tokens;
  }
  return CountJson(count);
}

Result<Json> CountInputFields(Service& service, Fields& fields, const std::string& tenant) {
  const server::Conversation conversation{
      .json = ReadInput(fields), .tools = protocol::ReadTools(fields, protocol::ToolShape::kFlat)};
  RETURN_IF_ERROR(fields.status());
  const auto prompt = server::EncodeChat(service, conversation, server::PromptLimit::kNone,
                                         server::AnswerOwner(service, tenant));
  if (!prompt.ok()) return prompt.status().WithField("input");
  return Json(
      Json::Object{{"object", "response.input_tokens"}, {"input_tokens", prompt->tokens.size()}});
}

}  // namespace

Action CountTokens(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return http::AnswerFields(service, request, head, http::OtherFields::kOfRequest,
                            [&service](Fields& fields) { return CountFields(service, fields); });
}

Action CountInput(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return http::AnswerFields(service, request, head, http::OtherFields::kOfRequest,
                            [&service, tenant = head.tenant](Fields& fields) {
                              return CountInputFields(service, fields, tenant);
                            });
}

}  // namespace thermocline::openai
