#include "server/core/prompt.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "engine/text/tokenizer.h"
#include "server/core/replayed_prompt.h"
#include "server/core/request_limits.h"
#include "server/core/request_memory.h"

namespace thermocline::server {
namespace {

Status TooLong(std::size_t tokens, bool at_least, std::size_t n_ctx) {
  return base::OutOfRange("This model's maximum context length is ", n_ctx,
                          " tokens; your prompt has ", at_least ? "at least " : "", tokens,
                          " tokens, which exceeds the available context size: one more must fit. "
                          "Shorten it.")
      .WithReason(Reason::kContextLength)
      .WithNumber("n_prompt_tokens", tokens)
      .WithNumber("n_ctx", n_ctx);
}

std::size_t ContextOf(const Service& service) { return service.engine()->Stats().context_length; }

// The tokens of `text` by `encode`, within `limit`.
template <typename Text, typename Encode>
Result<std::vector<int>> Within(const Service& service, PromptLimit limit, const Text& text,
                                Encode encode) {
  const std::size_t n_ctx = ContextOf(service);
  const bool limited = limit == PromptLimit::kContext;
  // A text of megabytes that cannot fit is rejected without tokenizing it.
  const std::size_t fewest = text.size() / service.engine()->tokenizer().token_bytes_max();
  if (limited && fewest >= n_ctx) return TooLong(fewest, true, n_ctx);
  std::vector<int> tokens = encode(text);
  if (limited && tokens.size() >= n_ctx) return TooLong(tokens.size(), false, n_ctx);
  return tokens;
}

// True if `text` ends with `word`, except for white space.
bool EndsWith(const std::string& text, const std::string& word) {
  const auto trimmed = [](std::string_view all) {
    return all.substr(0, all.find_last_not_of(" \n\r\t") + 1);
  };
  return !word.empty() && trimmed(text).ends_with(trimmed(word));
}

Result<EncodedPrompt> EncodeRaw(const Service& service, const std::string& text) {
  ASSIGN_OR_RETURN(std::vector<int> tokens, EncodeText(service, text));
  const model::Vocabulary& v = service.engine()->tokenizer().vocabulary();
  // An empty prompt is the beginning-of-sequence token, even if the vocabulary does not add one.
  if (tokens.empty() && v.bos >= 0) tokens = {v.bos};
  if (tokens.empty()) return base::InvalidArgument("the prompt is empty");
  return EncodedPrompt{.tokens = std::move(tokens), .bos_added = v.add_bos || text.empty()};
}

// A rendered conversation and its tokens.
struct ChatTokens {
  text::TemplateText text;
  std::vector<int> tokens = {};
  int replayed = 0;  // tokens of remembered answers
};

// The tokens of a conversation whose remembered answers are replayed; nullopt: none is remembered,
// the template does not show them in one part, or the context does not hold their tokens, which a
// client may not know of.
std::optional<ChatTokens> TokensOfReplay(const Service& service, const Conversation& conversation,
                                         const chat::AnswerKeys& keys) {
  const ReplayedPrompt replay(conversation, keys, service.token_memory());
  if (replay.empty()) return std::nullopt;
  auto text = RenderChat(service, replay.marked());
  if (!text.ok() || !CheckMadeText(text->bytes(), service.request_sizes()).ok())
    return std::nullopt;
  auto tokens = replay.Encode(*text, *service.output_format(), service.engine()->tokenizer());
  if (!tokens.has_value() || tokens->size() + 1 >= ContextOf(service)) return std::nullopt;
  return ChatTokens{.text = *std::move(text),
                    .tokens = service.chat()->WithBos(*std::move(tokens)),
                    .replayed = replay.tokens()};
}

Result<ChatTokens> TokensOfChat(const Service& service, const Conversation& conversation,
                                PromptLimit limit, const std::optional<chat::AnswerKeys>& keys) {
  if (keys.has_value()) {
    if (auto replayed = TokensOfReplay(service, conversation, *keys)) return *std::move(replayed);
  }
  ASSIGN_OR_RETURN(text::TemplateText text, RenderChat(service, conversation));
  RETURN_IF_ERROR(CheckMadeText(text.bytes(), service.request_sizes()));
  ASSIGN_OR_RETURN(std::vector<int> tokens,
                   Within(service, limit, text, [&service](const text::TemplateText& rendered) {
                     return service.chat()->Tokenize(rendered);
                   }));
  return ChatTokens{.text = std::move(text), .tokens = std::move(tokens)};
}

Result<EncodedPrompt> TakeIds(const Service& service, const std::vector<int>& ids) {
  if (ids.empty()) return base::InvalidArgument("the prompt is empty");
  RETURN_IF_ERROR(CheckTokens(service, ids));
  const std::size_t n_ctx = ContextOf(service);
  if (ids.size() >= n_ctx) return TooLong(ids.size(), false, n_ctx);
  return EncodedPrompt{.tokens = ids};
}

}  // namespace

Result<text::TemplateText> RenderChat(const Service& service, const Conversation& conversation) {
  const ChatFormatter* chat = service.chat();
  if (chat == nullptr && !service.engine()->writes())
    return base::InvalidArgument(
        "this model is an encoder: it makes vectors of texts "
        "(/v1/embeddings) and does not chat");
  if (chat == nullptr) return base::InvalidArgument("the model has no chat template");
  const chat::OutputFormat& format = *service.output_format();
  const std::size_t bytes_max = MadeTextBytesMax(service.request_sizes());
  const bool keep = service.reloadable()->config.keep_reasoning;
  if (conversation.continues_last) {
    const auto marked =
        chat->Render(chat::ForTemplateMarked(format, conversation, keep), bytes_max);
    if (marked.ok())
      if (const auto end = chat::FindMark(marked->bytes())) return marked->Part(0, *end);
  }
  auto prompt = chat->Render(chat::ForTemplate(format, conversation, keep), bytes_max);
  if (prompt.ok() && conversation.continues_last)
    prompt->AppendData(chat::BegunText(format, conversation));
  if (prompt.ok()) return prompt;
  // The template exceeded its limits on the client's request, so waiting would not help.
  const bool too_much = prompt.status().code() == StatusCode::kResourceExhausted;
  if (!too_much) return prompt.status();
  TrimHeap(std::numeric_limits<std::size_t>::max());  // the memory that the template allocated
  return base::InvalidArgument(prompt.status().message());
}

std::optional<std::string> AnswerOwner(const Service& service, const std::string& tenant) {
  const auto taken = service.reloadable();
  // Never shared between clients, whatever prefix_cache.share says: an answer's name does not cover
  // its reasoning, so one client could read another's, or plant tokens that its text does not have.
  return taken->config.token_memory ? std::optional(tenant) : std::nullopt;
}

Result<EncodedPrompt> EncodeChat(const Service& service, const Conversation& conversation,
                                 PromptLimit limit, const std::optional<std::string>& owner) {
  std::optional<chat::AnswerKeys> keys;
  if (owner.has_value())
    keys = chat::KeysOfAnswers(service.answers_salt() + *owner,
                               conversation.json.Find("messages")->as_array());
  ASSIGN_OR_RETURN(ChatTokens chat, TokensOfChat(service, conversation, limit, keys));
  if (chat.tokens.empty() && limit == PromptLimit::kContext)
    return base::InvalidArgument("the chat template makes no text of these messages");
  const chat::OutputFormat& format = *service.output_format();
  const chat::ReasoningTags& tags = format.reasoning;
  EncodedPrompt out{.tokens = std::move(chat.tokens), .replayed = chat.replayed};
  out.in_reasoning = tags.known() && EndsWith(chat.text.bytes(), tags.open);
  out.continues = conversation.continues_last;
  out.may_reason =
      tags.known() && !EndsWith(chat.text.bytes(), tags.close) && !conversation.continues_last;
  const std::size_t open = FindAnswerOpening(chat.text, format);
  if (!keys.has_value() || out.continues || open == std::string::npos) return out;
  AnswerPlace& place = out.place.emplace();
  place.before = keys->messages;
  place.opening = service.engine()->tokenizer().Encode(chat.text.Part(open, chat.text.size()));
  return out;
}

void RememberAnswer(Service& service, const AnswerPlace& place, const chat::WholeMessage& answer,
                    const std::vector<int>& tokens) {
  const auto& types = service.engine()->tokenizer().vocabulary().types;
  const auto& known = service.output_format()->control_tokens;
  const bool plain = std::all_of(tokens.begin(), tokens.end(), [&](int token) {
    return types[token] != model::TokenType::kControl ||
           std::any_of(known.begin(), known.end(),
                       [token](const auto& control) { return control.second == token; });
  });
  if (!plain) return;
  std::vector<int> all = place.opening;
  all.insert(all.end(), tokens.begin(), tokens.end());
  service.KeepAnswer(chat::KeyOfAnswer(place.before, answer), std::move(all));
}

Result<std::vector<int>> EncodeText(const Service& service, const std::string& text,
                                    const TextOptions& options) {
  const text::Tokenizer& tokenizer = service.engine()->tokenizer();
  return Within(service, options.limit, text, [&](const std::string& whole) {
    return tokenizer.Encode(whole,
                            {.add_bos = options.add_special && tokenizer.vocabulary().add_bos,
                             .control_tokens = options.parse_special});
  });
}

Result<EncodedPrompt> EncodePrompt(const Service& service, const Prompt& prompt,
                                   const std::optional<std::string>& owner) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return EncodeRaw(service, *text);
  if (const auto* ids = std::get_if<std::vector<int>>(&prompt)) return TakeIds(service, *ids);
  if (const auto* infill = std::get_if<Infill>(&prompt)) return EncodeInfill(service, *infill);
  return EncodeChat(service, std::get<Conversation>(prompt), PromptLimit::kContext, owner);
}

namespace {

// The tokens of a pair: between markers, the query, one or two separators, and the text, which is
// cut to `tokens_max` if that is not 0. Source: the templates of BERT, RoBERTa
// and ModernBERT.
Result<std::vector<int>> EncodePair(const Service& service, const RankedPair& pair,
                                    int tokens_max) {
  const model::Vocabulary& v = service.engine()->tokenizer().vocabulary();
  const TextOptions options{.add_special = false,
                            .parse_special = false,
                            .limit = tokens_max > 0 ? PromptLimit::kNone : PromptLimit::kContext};
  ASSIGN_OR_RETURN(const auto query, EncodeText(service, *pair.query, options));
  ASSIGN_OR_RETURN(auto text, EncodeText(service, pair.text, options));
  const bool one = v.one_separator || v.kind == model::VocabularyKind::kWordPiece;
  const std::size_t separators = one ? 1 : 2;
  const std::size_t around = query.size() + separators + 2, context = ContextOf(service);
  if (tokens_max > 0 && around < context)
    text.resize(std::min({text.size(), context - around, std::size_t(tokens_max)}));
  if (around + text.size() > context) return TooLong(around + text.size(), false, context);
  std::vector<int> out;
  if (v.bos >= 0) out.push_back(v.bos);
  out.insert(out.end(), query.begin(), query.end());
  if (v.eos >= 0) out.insert(out.end(), separators, v.eos);
  out.insert(out.end(), text.begin(), text.end());
  if (v.eos >= 0) out.push_back(v.eos);
  return out;
}

}  // namespace

Result<std::vector<int>> EncodeForEmbedding(const Service& service, const Prompt& prompt,
                                            Pooling pooling, int tokens_max) {
  if (const auto* pair = std::get_if<RankedPair>(&prompt))
    return EncodePair(service, *pair, tokens_max);
  if (pooling == Pooling::kRank)
    return base::InvalidArgument(
        "this model scores pairs of a query and a document (/v1/rerank) and makes no vectors");
  std::vector<int> tokens;
  const bool cut = tokens_max > 0;
  if (const auto* ids = std::get_if<std::vector<int>>(&prompt)) {
    RETURN_IF_ERROR(CheckTokens(service, *ids));
    tokens = *ids;
  } else if (const auto* text = std::get_if<std::string>(&prompt)) {
    if (text->empty()) return base::InvalidArgument("the text is empty");
    const PromptLimit limit = cut ? PromptLimit::kNone : PromptLimit::kContext;
    ASSIGN_OR_RETURN(tokens, EncodeText(service, *text, {.parse_special = false, .limit = limit}));
  }
  // One token less than the context leaves room for the end-of-sequence token.
  if (cut)
    tokens.resize(std::min({tokens.size(), ContextOf(service) - 1, std::size_t(tokens_max)}));
  const model::Vocabulary& vocabulary = service.engine()->tokenizer().vocabulary();
  const int eos = vocabulary.eos;
  const bool ends = pooling == Pooling::kLast ||
                    (vocabulary.add_eos && std::holds_alternative<std::string>(prompt));
  if (ends && eos >= 0 && (tokens.empty() || tokens.back() != eos)) tokens.push_back(eos);
  if (tokens.empty()) return base::InvalidArgument("the text is empty");
  return tokens;
}

Status CheckTokens(const Service& service, const std::vector<int>& tokens) {
  const int size = service.engine()->tokenizer().vocabulary().size();
  for (const int token : tokens) {
    if (token < 0 || token >= size) {
      return base::InvalidArgument("token id ", token, " is outside the vocabulary of ", size,
                                   " tokens");
    }
  }
  return OkStatus();
}

Result<std::string> DecodeTokens(const Service& service, const std::vector<int>& tokens,
                                 bool control_tokens) {
  RETURN_IF_ERROR(CheckTokens(service, tokens));
  const text::Tokenizer& tokenizer = service.engine()->tokenizer();
  std::size_t bytes = 0;
  for (const int token : tokens) bytes += tokenizer.TokenBytes(token, control_tokens).size();
  const std::size_t bytes_max = service.reloadable()->config.body_bytes_max;
  if (bytes > bytes_max) {
    return base::InvalidArgument("the text of these tokens has ", bytes, " bytes; at most ",
                                 bytes_max, " are given (server.body_bytes_max)");
  }
  return tokenizer.Decode(tokens, control_tokens);
}

Status CheckPieces(std::size_t tokens) {
  if (tokens <= kPiecesMax) return OkStatus();
  return base::InvalidArgument("'with_pieces' is for at most ", kPiecesMax,
                               " tokens, and the text has ", tokens, "; send it in parts");
}

}  // namespace thermocline::server
