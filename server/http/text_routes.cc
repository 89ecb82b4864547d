#include "server/http/text_routes.h"

#include <algorithm>

#include "engine/text/tokenizer.h"
#include "server/core/prompt.h"
#include "server/http/refusal.h"
#include "server/openai/completion_request.h"
#include "server/openai/messages.h"

namespace thermocline::http {
namespace {

using openai::ApiError;
using openai::Fields;
using server::Service;

constexpr std::size_t kIdsMax = 1 << 20;

ApiError Invalid(const char* param, const std::string& message) {
  return openai::FromStatus(base::InvalidArgument(message), param);
}

// Parses the body and hands its fields to `answer`, while requests are served.
template <typename Answer>
Action WithFields(Service& service, const HttpRequest& request, const ResponseHead& head,
                  const Answer& answer) {
  const auto json = base::ParseJson(request.body());
  if (!json.ok()) return ErrorResponse(head, openai::FromStatus(json.status()));
  if (!json->is_object())
    return ErrorResponse(
        head, Invalid("", StrCat("the body must be a JSON object, not a ", json->type_name())));
  if (const Status not_ready = NotReady(service); !not_ready.ok())
    return RefusalResponse(service, head, not_ready);
  Fields fields(*json);
  const std::variant<Json, ApiError> result = answer(fields);
  if (!fields.ok()) return ErrorResponse(head, fields.error());
  if (const auto* error = std::get_if<ApiError>(&result)) return ErrorResponse(head, *error);
  return JsonResponse(head, 200, std::get<Json>(result));
}

// A token's bytes: text, or a list of numbers where they are no whole characters.
Json Piece(const std::string& bytes) {
  if (base::ReplaceInvalidUtf8(bytes) == bytes) return bytes;
  Json::Array numbers;
  for (const char byte : bytes)
    numbers.emplace_back(static_cast<int>(static_cast<unsigned char>(byte)));
  return numbers;
}

std::variant<Json, ApiError> TokenizeFields(Service& service, Fields& fields) {
  std::optional<std::string> content;
  for (const char* name : {"content", "prompt", "text"}) {
    if (fields.Find(name) != nullptr) content = fields.String(name, "");
  }
  const text::EncodeOptions options{.add_bos = fields.Bool("add_special", false),
                                    .control_tokens = fields.Bool("parse_special", true)};
  const bool pieces = fields.Bool("with_pieces", false);
  if (!content.has_value()) return Invalid("content", "'content' must be a string");
  const text::Tokenizer& tokenizer = service.engine()->tokenizer();
  const std::vector<int> tokens = tokenizer.Encode(*content, options);
  const Status few = pieces ? server::CheckPieces(tokens.size()) : OkStatus();
  if (!few.ok()) return openai::FromStatus(few, "with_pieces");
  Json::Array list;
  for (const int token : tokens) {
    list.emplace_back(
        pieces
            ? Json(Json::Object{{"id", token}, {"piece", Piece(tokenizer.TokenBytes(token, true))}})
            : Json(token));
  }
  return Json(Json::Object{{"tokens", std::move(list)}, {"count", tokens.size()}});
}

std::variant<Json, ApiError> DetokenizeFields(Service& service, Fields& fields) {
  const auto tokens = fields.Ints("tokens", kIdsMax);
  if (!tokens.has_value()) return Invalid("tokens", "'tokens' must be a list of token ids");
  auto text = server::DecodeTokens(service, *tokens, true);
  if (!text.ok()) return openai::FromStatus(text.status(), "tokens");
  return Json(Json::Object{{"content", *std::move(text)}});
}

std::variant<Json, ApiError> ApplyTemplateFields(Service& service, Fields& fields) {
  const Json conversation = openai::ReadMessages(fields);
  if (!fields.ok()) return fields.error();
  auto text = server::RenderChat(service, conversation);
  if (!text.ok()) return openai::FromStatus(text.status(), "messages");
  std::erase(*text, text::kTokenBreak);
  return Json(Json::Object{{"prompt", *std::move(text)}});
}

Result<std::size_t> Count(Service& service, const openai::Prompt& prompt) {
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

std::variant<Json, ApiError> CountFields(Service& service, Fields& fields) {
  const Json* value = fields.Find("prompt");
  if (value == nullptr) {
    const Json conversation = openai::ReadMessages(fields);
    if (!fields.ok()) return fields.error();
    const auto tokens = server::EncodeChat(service, conversation, server::PromptLimit::kNone);
    if (!tokens.ok()) return openai::FromStatus(tokens.status(), "messages");
    return CountJson(tokens->size());
  }
  const auto prompts = openai::ReadPrompts(*value);
  if (!prompts.has_value())
    return Invalid("prompt", "'prompt' must be a string, a list of token ids, or a list of either");
  std::size_t count = 0;
  for (const openai::Prompt& prompt : *prompts) {
    const auto tokens = Count(service, prompt);
    if (!tokens.ok()) return openai::FromStatus(tokens.status(), "prompt");
    count += *tokens;
  }
  return CountJson(count);
}

}  // namespace

Action Tokenize(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return WithFields(service, request, head,
                    [&service](Fields& fields) { return TokenizeFields(service, fields); });
}

Action Detokenize(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return WithFields(service, request, head,
                    [&service](Fields& fields) { return DetokenizeFields(service, fields); });
}

Action ApplyTemplate(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return WithFields(service, request, head,
                    [&service](Fields& fields) { return ApplyTemplateFields(service, fields); });
}

Action CountTokens(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return WithFields(service, request, head,
                    [&service](Fields& fields) { return CountFields(service, fields); });
}

}  // namespace thermocline::http
