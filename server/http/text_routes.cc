#include "server/http/text_routes.h"

#include <algorithm>

#include "engine/text/tokenizer.h"
#include "server/anthropic/messages_request.h"
#include "server/core/prompt.h"
#include "server/core/submission.h"
#include "server/http/refusal.h"
#include "server/openai/completion_request.h"
#include "server/openai/conversation_fields.h"
#include "server/openai/responses_input.h"
#include "server/openai/tool_fields.h"

namespace thermocline::http {
namespace {

using openai::Fields;
using server::Service;

constexpr std::size_t kIdsMax = 1 << 20;

// Parses the body and hands its fields to `answer`, while requests are served. `strict`: others are
// refused; else the body may be that of a whole request, most of which does not matter.
template <typename Answer>
Result<Json> AnswerFields(const Service& service, const HttpRequest& request, bool strict,
                          const Answer& answer) {
  ASSIGN_OR_RETURN(const Json body, base::ParseJson(request.body()));
  if (!body.is_object())
    return base::InvalidArgument("the body must be a JSON object, not a ", body.type_name());
  RETURN_IF_ERROR(service.Readiness());
  Fields fields(body);
  const std::string model = fields.String("model", "");
  Result<Json> result = answer(fields);
  RETURN_IF_ERROR(fields.status());
  if (strict) fields.RefuseUnknown();
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(server::CheckModel(service, model));
  return result;
}

template <typename Answer>
Action WithFields(Service& service, const HttpRequest& request, const ResponseHead& head,
                  bool strict, const Answer& answer) {
  const auto json = AnswerFields(service, request, strict, answer);
  if (!json.ok()) return RefusalResponse(service, head, json.status());
  return JsonResponse(head, 200, *json);
}

// A token's bytes: text, or a list of numbers where they are no whole characters.
Json Piece(const std::string& bytes) {
  if (base::ReplaceInvalidUtf8(bytes) == bytes) return bytes;
  Json::Array numbers;
  for (const char byte : bytes)
    numbers.emplace_back(static_cast<int>(static_cast<unsigned char>(byte)));
  return numbers;
}

Result<Json> TokenizeFields(Service& service, Fields& fields) {
  std::optional<std::string> content;
  for (const char* name : {"content", "prompt", "text"}) {
    if (fields.Find(name) != nullptr) content = fields.String(name, "");
  }
  const text::EncodeOptions options{.add_bos = fields.Bool("add_special", false),
                                    .control_tokens = fields.Bool("parse_special", true)};
  const bool pieces = fields.Bool("with_pieces", false);
  if (!content.has_value())
    return base::InvalidArgument("'content' must be a string").WithField("content");
  const text::Tokenizer& tokenizer = service.engine()->tokenizer();
  const std::vector<int> tokens = tokenizer.Encode(*content, options);
  if (pieces) RETURN_IF_ERROR(server::CheckPieces(tokens.size()).WithField("with_pieces"));
  Json::Array list;
  for (const int token : tokens) {
    list.emplace_back(
        pieces
            ? Json(Json::Object{{"id", token}, {"piece", Piece(tokenizer.TokenBytes(token, true))}})
            : Json(token));
  }
  return Json(Json::Object{{"tokens", std::move(list)}, {"count", tokens.size()}});
}

Result<Json> DetokenizeFields(Service& service, Fields& fields) {
  const auto tokens = fields.Ints("tokens", kIdsMax);
  if (!tokens.has_value())
    return base::InvalidArgument("'tokens' must be a list of token ids").WithField("tokens");
  auto text = server::DecodeTokens(service, *tokens, true);
  if (!text.ok()) return text.status().WithField("tokens");
  return Json(Json::Object{{"content", *std::move(text)}});
}

Result<Json> ApplyTemplateFields(Service& service, Fields& fields) {
  const server::Conversation conversation = openai::ReadConversation(fields);
  RETURN_IF_ERROR(fields.status());
  auto text = server::RenderChat(service, conversation);
  if (!text.ok()) return text.status().WithField("messages");
  std::erase(*text, text::kTokenBreak);
  return Json(Json::Object{{"prompt", *std::move(text)}});
}

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
    const server::Conversation conversation = openai::ReadConversation(fields);
    RETURN_IF_ERROR(fields.status());
    const auto tokens = server::EncodeChat(service, conversation, server::PromptLimit::kNone);
    if (!tokens.ok()) return tokens.status().WithField("messages");
    return CountJson(tokens->tokens.size());
  }
  const auto prompts = openai::ReadPrompts(*value);
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

Result<Json> CountInputFields(Service& service, Fields& fields) {
  const server::Conversation conversation{
      .json = openai::ReadInput(fields),
      .tools = openai::ReadTools(fields, openai::ToolShape::kFlat)};
  RETURN_IF_ERROR(fields.status());
  const auto prompt = server::EncodeChat(service, conversation, server::PromptLimit::kNone);
  if (!prompt.ok()) return prompt.status().WithField("input");
  return Json(
      Json::Object{{"object", "response.input_tokens"}, {"input_tokens", prompt->tokens.size()}});
}

Result<Json> CountMessagesFields(Service& service, Fields& fields) {
  const server::Conversation conversation = anthropic::ReadMessagesConversation(fields);
  RETURN_IF_ERROR(fields.status());
  const auto prompt = server::EncodeChat(service, conversation, server::PromptLimit::kNone);
  if (!prompt.ok()) return prompt.status().WithField("messages");
  return Json(Json::Object{{"input_tokens", prompt->tokens.size()}});
}

}  // namespace

Action Tokenize(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return WithFields(service, request, head, true,
                    [&service](Fields& fields) { return TokenizeFields(service, fields); });
}

Action Detokenize(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return WithFields(service, request, head, true,
                    [&service](Fields& fields) { return DetokenizeFields(service, fields); });
}

Action ApplyTemplate(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return WithFields(service, request, head, false,
                    [&service](Fields& fields) { return ApplyTemplateFields(service, fields); });
}

Action CountTokens(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return WithFields(service, request, head, false,
                    [&service](Fields& fields) { return CountFields(service, fields); });
}

Action CountMessages(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return WithFields(service, request, head, false,
                    [&service](Fields& fields) { return CountMessagesFields(service, fields); });
}

Action CountInput(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return WithFields(service, request, head, false,
                    [&service](Fields& fields) { return CountInputFields(service, fields); });
}

}  // namespace thermocline::http
