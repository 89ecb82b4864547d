// Turns a client's prompt into tokens, with the same limits in every protocol.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/sha256.h"
#include "engine/text/template_text.h"
#include "server/chat/message_part.h"
#include "server/core/generation_request.h"
#include "server/core/service.h"

namespace thermocline::server {

// kContext: a prompt of more tokens than the context is OutOfRange, for kContextLength, with the
// numbers n_prompt_tokens and n_ctx; a text that cannot fit is not tokenized, and n_prompt_tokens
// is a lower bound. kNone: no limit, for counting or showing tokens.
enum class PromptLimit { kContext, kNone };

// Renders a conversation with the model's template. InvalidArgument: the template rejects it, or
// the model has none. Requires: the model is loaded.
Result<text::TemplateText> RenderChat(const Service& service, const Conversation& conversation);

// The place of an answer in its conversation, by which the token memory knows it later.
struct AnswerPlace {
  base::Digest256 before = {};    // names the messages before it
  std::vector<int> opening = {};  // the prompt's last tokens, which open the answer
};

// A prompt for the engine, within the context.
struct EncodedPrompt {
  std::vector<int> tokens;
  bool bos_added = false;      // the first token is beginning-of-sequence and not in the text
  bool in_reasoning = false;   // the answer begins inside reasoning
  bool may_reason = false;     // the answer may begin with reasoning
  bool continues = false;      // the answer continues text at the prompt's end
  std::vector<int> ends = {};  // tokens that end the answer, besides the model's
  int replayed = 0;            // tokens of earlier answers that the token memory had
  // Set if the answer may be remembered.
  std::optional<AnswerPlace> place = {};
};

// The owner of the remembered answers for a client's conversations; nullopt: they are not used.
std::optional<std::string> AnswerOwner(const Service& service, const std::string& tenant);

// The prompt of a conversation. Errors as RenderChat. Earlier answers have the tokens that the
// model sampled, as far as the service remembers them for `owner`; nullopt: no answer does.
Result<EncodedPrompt> EncodeChat(const Service& service, const Conversation& conversation,
                                 PromptLimit limit = PromptLimit::kContext,
                                 const std::optional<std::string>& owner = std::nullopt);

// Puts an answer into the token memory, unless it has control tokens that are not part of the
// model's format: a model that was talked into writing the mark of a system message would get it
// again.
void RememberAnswer(Service& service, const AnswerPlace& place, const chat::WholeMessage& answer,
                    const std::vector<int>& tokens);

// Options for the tokens of a raw prompt.
struct TextOptions {
  bool add_special = true;    // adds beginning-of-sequence if the model wants it
  bool parse_special = true;  // parses the names of control tokens in the text
  PromptLimit limit = PromptLimit::kContext;
};
Result<std::vector<int>> EncodeText(const Service& service, const std::string& text,
                                    const TextOptions& options = {});

// The prompt for filling a gap: prefix, suffix and the mark of the middle, in this order, after as
// much of the other files as leaves a quarter of the context free. Unimplemented: the vocabulary
// has no infill tokens. Source: the layout of llama.cpp's server.
Result<EncodedPrompt> EncodeInfill(const Service& service, const Infill& infill);

// InvalidArgument: an empty prompt, an id outside the vocabulary, or as RenderChat. `owner` as in
// EncodeChat.
Result<EncodedPrompt> EncodePrompt(const Service& service, const Prompt& prompt,
                                   const std::optional<std::string>& owner = std::nullopt);

// The tokens of a text for an embedding: with beginning-of-sequence if the model wants it and, for
// pooling by the last token, with end-of-sequence. Names of control tokens in the text stay text.
// InvalidArgument: the prompt is empty, a conversation, or has an id outside the vocabulary.
// OutOfRange as for kContext, but the whole context may be used. With `tokens_max` above 0 a longer
// text is truncated to so many tokens, at most to the context.
Result<std::vector<int>> EncodeForEmbedding(const Service& service, const Prompt& prompt,
                                            Pooling pooling, int tokens_max);

// InvalidArgument: an id outside the vocabulary.
Status CheckTokens(const Service& service, const std::vector<int>& tokens);

// The text of `tokens`, with or without control tokens. InvalidArgument: as CheckTokens, or a text
// longer than a body may be (server.body_bytes_max).
Result<std::string> DecodeTokens(const Service& service, const std::vector<int>& tokens,
                                 bool control_tokens);

// InvalidArgument: a list of more than kPiecesMax tokens with their bytes, whose JSON is many times
// as long as the text.
Status CheckPieces(std::size_t tokens);

}  // namespace thermocline::server
