// Converts chat messages to prompt tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/text/chat_template.h"

namespace thermocline {

namespace text {
class Tokenizer;
}  // namespace text

// Renders conversations with a model's own template. Thread-safe.
class ChatFormatter {
 public:
  // FailedPrecondition if the model has no template; otherwise as ChatTemplate::Parse. Borrows
  // `tokenizer`.
  static Result<std::unique_ptr<ChatFormatter>> Create(const text::Tokenizer& tokenizer);
  ~ChatFormatter();

  // `conversation` is an object with "messages" and other members that the template reads ("tools",
  // ...). Clients' text never becomes a control token. Errors as ChatTemplate::Render.
  Result<text::TemplateText> Render(const Json& conversation,
                                    std::size_t bytes_max = text::kRenderedBytesMax) const;
  // Returns the tokens of a rendered prompt.
  std::vector<int> Tokenize(const text::TemplateText& prompt) const;
  // The tokens of a prompt with the beginning-of-sequence token first, if the model wants it and
  // the template has not written it.
  std::vector<int> WithBos(std::vector<int> tokens) const;
  // Renders and tokenizes.
  Result<std::vector<int>> Encode(const Json& conversation) const;

 private:
  ChatFormatter(const text::Tokenizer& tokenizer, std::unique_ptr<text::ChatTemplate> chat_template,
                std::unique_ptr<text::ChatTemplate> tool_template);

  const text::Tokenizer& tokenizer_;
  std::unique_ptr<text::ChatTemplate> template_;
  std::unique_ptr<text::ChatTemplate> tool_template_;  // used if tools are given; null = template_
};

}  // namespace thermocline
