// Prompts in which earlier answers have the tokens that the model sampled (chat/token_memory.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/text/template_text.h"
#include "engine/text/tokenizer.h"
#include "server/chat/answer_keys.h"
#include "server/chat/conversation.h"
#include "server/chat/output_format.h"
#include "server/chat/token_memory.h"

namespace thermocline::server {

// A conversation whose remembered answers are replaced by marks, so that the template shows where
// an answer begins and ends. Thread-compatible.
class ReplayedPrompt {
 public:
  // Marks the answers of `conversation` that `memory` has. `keys` are its answers' keys.
  ReplayedPrompt(const chat::Conversation& conversation, const chat::AnswerKeys& keys,
                 chat::TokenMemory& memory);

  // True if no answer is remembered; then the other methods must not be called.
  bool empty() const { return answers_.empty(); }
  const chat::Conversation& marked() const { return marked_; }
  // The tokens of the rendered `marked()` with every remembered answer from its opening to its
  // end. nullopt: the template does not show an answer as one part between its opening and a token
  // that ends it.
  std::optional<std::vector<int>> Encode(const text::TemplateText& rendered,
                                         const chat::OutputFormat& format,
                                         const text::Tokenizer& tokenizer) const;
  // The tokens of the remembered answers.
  int tokens() const;

 private:
  struct Answer {
    std::string mark;
    chat::TokenMemory::Tokens tokens;
    std::string reasoning = {};  // that the client sends back
  };
  struct Part {
    std::size_t begin = 0, end = 0;
  };
  void Mark(const chat::PastAnswer& past, Json::Array& messages, const Answer& answer) const;
  // Finds each answer's part of the rendered text, in order; nullopt as Encode.
  std::optional<std::vector<Part>> FindParts(const text::TemplateText& rendered,
                                             const chat::OutputFormat& format) const;

  chat::Conversation marked_;
  std::vector<Answer> answers_;
  std::string nonce_;  // begins every mark; no client can guess it
};

// The position at the end of `prompt` where the template opens an answer, or npos: the prompt ends
// in another message.
std::size_t FindAnswerOpening(const text::TemplateText& prompt, const chat::OutputFormat& format);

}  // namespace thermocline::server
