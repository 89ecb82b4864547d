// Log probabilities in the formats of OpenAI's API.
#pragma once

#include <span>

#include "engine/api/token_channel.h"
#include "engine/base/json_list.h"
#include "engine/text/tokenizer.h"

namespace thermocline::openai {

// /v1/responses: [{"token", "logprob", "bytes", "top_logprobs"}]. `scores`: the entries of each
// token as in TokenChannel::Update, `top` besides its own.
base::JsonList TokenLogprobs(const text::Tokenizer& tokenizer, int top,
                             std::span<const TokenChannel::Score> scores);

// /v1/chat/completions: {"content": as TokenLogprobs, "refusal"}.
Json ChatLogprobs(const text::Tokenizer& tokenizer, int top,
                  std::span<const TokenChannel::Score> scores);

// /v1/completions: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. A token that is
// part of a character reads "bytes:\xe2\x80". One object per choice, since offsets continue from
// part to part.
class LegacyLogprobs {
 public:
  // `at_text_start`: the first token begins the text, so SentencePiece's leading space is not part
  // of it.
  LegacyLogprobs(const text::Tokenizer& tokenizer, int top, bool at_text_start)
      : tokenizer_(tokenizer),
        top_(top),
        drop_space_(at_text_start && tokenizer.vocabulary().add_space_prefix) {}

  // Adds the first token, which has no probability. Tokens that we added are not `in_text`.
  void AddFirst(int token, bool in_text);
  void Add(std::span<const TokenChannel::Score> scores);
  // Returns the log probabilities added since the last call.
  Json Take();

 private:
  // Returns the token's text.
  std::string AddToken(int token, bool in_text);

  const text::Tokenizer& tokenizer_;
  const int top_;
  bool drop_space_;
  std::int64_t offset_ = 0;  // characters before the next token
  base::JsonList tokens_, logprobs_, tops_, offsets_;
};

}  // namespace thermocline::openai
