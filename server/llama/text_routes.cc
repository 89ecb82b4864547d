#include "server/llama/text_routes.h"

#include <algorithm>

#include "engine/base/bytes.h"
#include "engine/base/interruption.h"
#include "engine/base/json_list.h"
#include "engine/text/tokenizer.h"
#include "server/core/prompt.h"
#include "server/core/submission.h"
#include "server/http/field_answer.h"
#include "server/http/refusal.h"
#include "server/protocol/chat_tokens.h"
#include "server/protocol/conversation_fields.h"

namespace thermocline::llama {
namespace {

using http::Action;
using http::HttpRequest;
using http::ResponseHead;
using protocol::Fields;
using server::Service;

constexpr std::size_t kIdsMax = 1 << 20;
constexpr std::size_t kIdsUnasked = 16 << 10;  // checked for an interrupt this often, some 0.5 ms

// A token's bytes: text, or a list of numbers if they are not complete characters.
Json Piece(const std::string& bytes) {
  if (base::ReplaceInvalidUtf8(bytes) == bytes) return bytes;
  Json::Array numbers;
  for (const char byte : bytes) numbers.emplace_back(base::ByteOf(byte));
  return numbers;
}

// The tokens of the text, which is in one of three fields.
Result<std::vector<int>> TextTokens(Service& service, Fields& fields) {
  std::optional<std::string> content;
  for (const char* name : {"content", "prompt", "text"}) {
    if (fields.Find(name) != nullptr) content = fields.String(name, "");
  }
  const text::Tokenizer& tokenizer = service.engine()->tokenizer();
  // vLLM's name of "add_special", with vLLM's default. Only models that use the token get it.
  const bool special = fields.Find("add_special_tokens") != nullptr
                           ? fields.Bool("add_special_tokens", true)
                           : fields.Bool("add_special", false);
  const text::EncodeOptions options{.add_bos = special && tokenizer.vocabulary().add_bos,
                                    .control_tokens = fields.Bool("parse_special", true)};
  if (!content.has_value())
    return base::InvalidArgument("'content' must be a string, or give 'messages'")
        .WithField("content");
  return tokenizer.Encode(*content, options);
}

Result<Json> TokenizeFields(Service& service, Fields& fields) {
  const bool pieces = fields.Bool("with_pieces", false),
             texts = fields.Bool("return_token_strs", false);
  const bool chat = fields.Find("messages") != nullptr;
  for (const char* name : {"content", "prompt", "text"})
    if (chat && fields.Find(name) != nullptr)
      fields.Fail(name, StrCat("'", name, "' and 'messages' exclude each other"));
  ASSIGN_OR_RETURN(const std::vector<int> tokens,
                   chat ? protocol::ChatTokens(service, fields) : TextTokens(service, fields));
  const text::Tokenizer& tokenizer = service.engine()->tokenizer();
  if (pieces) RETURN_IF_ERROR(server::CheckPieces(tokens.size()).WithField("with_pieces"));
  base::JsonList list;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i % kIdsUnasked == 0 && base::Interrupted()) break;
    const int token = tokens[i];
    list.Add(pieces ? Json(Json::Object{{"id", token},
                                        {"piece", Piece(tokenizer.TokenBytes(token, true))}})
                    : Json(token));
  }
  Json::Object out{{"tokens", list.Take()},
                   {"count", tokens.size()},
                   {"max_model_len", service.engine()->Stats().context_length}};
  if (texts) {
    RETURN_IF_ERROR(server::CheckPieces(tokens.size()).WithField("return_token_strs"));
    base::JsonList strings;
    for (const int token : tokens)
      strings.Add(base::ReplaceInvalidUtf8(tokenizer.TokenBytes(token, true)));
    out.emplace_back("token_strs", strings.Take());
  }
  return Json(std::move(out));
}

Result<Json> DetokenizeFields(Service& service, Fields& fields) {
  const auto tokens = fields.Ints("tokens", kIdsMax);
  if (!tokens.has_value())
    return base::InvalidArgument("'tokens' must be a list of token ids").WithField("tokens");
  auto text = server::DecodeTokens(service, *tokens, true);
  if (!text.ok()) return text.status().WithField("tokens");
  // Llama-server's name, and vLLM's.
  return Json(Json::Object{{"content", *text}, {"prompt", *text}});
}

Result<Json> ApplyTemplateFields(Service& service, Fields& fields) {
  const server::Conversation conversation = protocol::ReadConversation(fields);
  RETURN_IF_ERROR(fields.status());
  const auto text = server::RenderChat(service, conversation);
  if (!text.ok()) return text.status().WithField("messages");
  return Json(Json::Object{{"prompt", text->bytes()}});
}

}  // namespace

Action Tokenize(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return http::AnswerFields(service, request, head, http::OtherFields::kChecked,
                            [&service](Fields& fields) { return TokenizeFields(service, fields); });
}

Action Detokenize(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return http::AnswerFields(
      service, request, head, http::OtherFields::kChecked,
      [&service](Fields& fields) { return DetokenizeFields(service, fields); });
}

Action TokenizerInfo(Service& service, const HttpRequest&, const ResponseHead& head) {
  const Status ready = service.Readiness();
  if (!ready.ok()) return http::FailureResponse(service, head, ready);
  const text::Tokenizer& tokenizer = service.engine()->tokenizer();
  const model::Vocabulary& vocabulary = tokenizer.vocabulary();
  const auto text = [&](int id) { return id < 0 ? Json() : Json(tokenizer.TokenBytes(id, true)); };
  return http::JsonResponse(
      head, 200,
      Json::Object{{"tokenizer_class", "PreTrainedTokenizerFast"},
                   {"bos_token", text(vocabulary.bos)},
                   {"eos_token", text(vocabulary.eos)},
                   {"pad_token", text(vocabulary.eos)},
                   {"add_bos_token", vocabulary.add_bos},
                   {"model_max_length", service.engine()->Stats().context_length},
                   {"chat_template", vocabulary.chat_template}});
}

Action ApplyTemplate(Service& service, const HttpRequest& request, const ResponseHead& head) {
  return http::AnswerFields(
      service, request, head, http::OtherFields::kOfRequest,
      [&service](Fields& fields) { return ApplyTemplateFields(service, fields); });
}

}  // namespace thermocline::llama
