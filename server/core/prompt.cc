#include "server/core/prompt.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "engine/text/tokenizer.h"
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
  if (chat == nullptr) return base::InvalidArgument("the model has no chat template");
  const chat::OutputFormat& format = *service.output_format();
  const std::size_t bytes_max = MadeTextBytesMax(service.request_sizes());
  if (conversation.continues_last) {
    const auto marked = chat->Render(chat::ForTemplateMarked(format, conversation), bytes_max);
    if (marked.ok())
      if (const auto end = chat::FindMark(marked->bytes())) return marked->Part(0, *end);
  }
  auto prompt = chat->Render(chat::ForTemplate(format, conversation), bytes_max);
  if (prompt.ok() && conversation.continues_last)
    prompt->AppendData(chat::BegunText(format, conversation));
  if (prompt.ok()) return prompt;
  // The template exceeded its limits on the client's request, so waiting would not help.
  const bool too_much = prompt.status().code() == StatusCode::kResourceExhausted;
  if (!too_much) return prompt.status();
  TrimHeap(std::numeric_limits<std::size_t>::max());  // the memory that the template allocated
  return base::InvalidArgument(prompt.status().message());
}

Result<EncodedPrompt> EncodeChat(const Service& service, const Conversation& conversation,
                                 PromptLimit limit) {
  ASSIGN_OR_RETURN(const text::TemplateText prompt, RenderChat(service, conversation));
  RETURN_IF_ERROR(CheckMadeText(prompt.bytes(), service.request_sizes()));
  ASSIGN_OR_RETURN(std::vector<int> tokens,
                   Within(service, limit, prompt, [&service](const text::TemplateText& text) {
                     return service.chat()->Tokenize(text);
                   }));
  if (tokens.empty() && limit == PromptLimit::kContext)
    return base::InvalidArgument("the chat template makes no text of these messages");
  const chat::ReasoningTags& tags = service.output_format()->reasoning;
  EncodedPrompt out{.tokens = std::move(tokens)};
  out.in_reasoning = tags.known() && EndsWith(prompt.bytes(), tags.open);
  out.continues = conversation.continues_last;
  out.may_reason =
      tags.known() && !EndsWith(prompt.bytes(), tags.close) && !conversation.continues_last;
  return out;
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

Result<EncodedPrompt> EncodePrompt(const Service& service, const Prompt& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return EncodeRaw(service, *text);
  if (const auto* ids = std::get_if<std::vector<int>>(&prompt)) return TakeIds(service, *ids);
  if (const auto* infill = std::get_if<Infill>(&prompt)) return EncodeInfill(service, *infill);
  return EncodeChat(service, std::get<Conversation>(prompt));
}

Result<std::vector<int>> EncodeForEmbedding(const Service& service, const Prompt& prompt,
                                            Pooling pooling, int tokens_max) {
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
  const int eos = service.engine()->tokenizer().vocabulary().eos;
  if (pooling == Pooling::kLast && eos >= 0 && (tokens.empty() || tokens.back() != eos))
    tokens.push_back(eos);
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
