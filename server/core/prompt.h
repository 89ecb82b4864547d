// From what a client sent to prompt tokens, with the same bounds for every protocol.
#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/text/template_text.h"
#include "server/core/asked.h"
#include "server/core/service.h"

namespace thermocline::server {

// kContext: more tokens than the context holds are OutOfRange, for kContextLength, with the numbers
// n_prompt_tokens and n_ctx; what cannot fit is not tokenized, and so many tokens it has at least.
// kNone: to count or to show them.
enum class PromptLimit { kContext, kNone };

// The text that the model's template makes of a conversation.
// InvalidArgument: the template refuses it, or the model has none. Requires: the model is loaded.
Result<text::TemplateText> RenderChat(const Service& service, const Conversation& conversation);

// A prompt as the engine gets it, within the context.
struct EncodedPrompt {
  std::vector<int> tokens;
  bool bos_added = false;      // the first is the beginning-of-sequence token, and not of the text
  bool in_reasoning = false;   // the answer begins within reasoning
  bool may_reason = false;     // it may begin with reasoning
  bool continues = false;      // it goes on with text that the prompt ends with
  std::vector<int> ends = {};  // tokens at which the answer ends, besides the model's
};

// The prompt of a conversation. Errors as RenderChat.
Result<EncodedPrompt> EncodeChat(const Service& service, const Conversation& conversation,
                                 PromptLimit limit = PromptLimit::kContext);

// The tokens of a raw prompt.
struct TextOptions {
  bool add_special = true;    // the beginning-of-sequence token, if the model wants one
  bool parse_special = true;  // control tokens in the text become themselves
  PromptLimit limit = PromptLimit::kContext;
};
Result<std::vector<int>> EncodeText(const Service& service, const std::string& text,
                                    const TextOptions& options = {});

// The prompt of a gap: prefix, suffix and the beginning of the middle, in this order, behind as
// much of the other files as leaves a quarter of the context. Unimplemented: the vocabulary has no
// tokens for gaps. Source: llama.cpp's server lays them out so.
Result<EncodedPrompt> EncodeInfill(const Service& service, const Infill& infill);

// InvalidArgument: nothing to begin with, an id outside the vocabulary, or as RenderChat.
Result<EncodedPrompt> EncodePrompt(const Service& service, const Prompt& prompt);

// The tokens of a text whose vector is wanted: with the beginning-of-sequence token, if the model
// wants one, and, where the last token's state is taken, with that of the end. What the text spells
// stays text. InvalidArgument: it is empty, a conversation, or has an id outside the vocabulary;
// OutOfRange as kContext says, but that the whole context may be used. With `tokens_max`
// above 0 a longer text is cut to so many tokens, and to the context at most.
Result<std::vector<int>> EncodeForEmbedding(const Service& service, const Prompt& prompt,
                                            Pooling pooling, int tokens_max);

// InvalidArgument: an id outside the vocabulary.
Status CheckTokens(const Service& service, const std::vector<int>& tokens);

// The text of `tokens`, with control tokens as they are written or without them. InvalidArgument:
// as CheckTokens, or a text longer than a body may be (server.body_bytes_max).
Result<std::string> DecodeTokens(const Service& service, const std::vector<int>& tokens,
                                 bool control_tokens);

// InvalidArgument: more than kPiecesMax tokens to be told with their bytes, which take many times
// the text's.
Status CheckPieces(std::size_t tokens);

}  // namespace thermocline::server
