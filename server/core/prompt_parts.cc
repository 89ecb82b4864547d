#include "server/core/prompt_parts.h"

#include <algorithm>
#include <string>

#include "engine/base/index.h"
#include "server/chat/message_json.h"

namespace thermocline::server {
namespace {

constexpr std::size_t kNoText = std::string::npos;
// A reasoning's marks, and the few tokens in which its absence shows.
constexpr int kReasoningTokens = 8;
// A message is found by its first bytes: templates trim texts, and tokens normalize them.
constexpr std::size_t kTextBytes = 48;

// The bytes of tokens, and the token of each byte.
class TokenText {
 public:
  TokenText(const std::vector<int>& tokens, const text::Tokenizer& tokenizer) {
    for (const int token : tokens) {
      bytes_ += tokenizer.TokenBytes(token, true);
      ends_.push_back(bytes_.size());
    }
  }
  const std::string& bytes() const { return bytes_; }
  // The token that holds a byte; the number of tokens for npos.
  int TokenOf(std::size_t byte) const {
    return static_cast<int>(std::upper_bound(ends_.begin(), ends_.end(), byte) - ends_.begin());
  }
  // Returns the place of `text` from `from` on, by its first bytes; npos for an empty one.
  std::size_t Find(std::string_view text, std::size_t from) const {
    text = text.substr(0, text.find('\n')).substr(0, kTextBytes);
    return text.empty() ? kNoText : bytes_.find(text, from);
  }

 private:
  std::string bytes_;
  std::vector<std::size_t> ends_;
};

bool IsSystem(const Json& message) {
  return chat::IsRole(message, "system") || chat::IsRole(message, "developer");
}

}  // namespace

const char* PromptPartName(PromptPart part) {
  static constexpr const char* kNames[] = {"system", "tools", "history", "reasoning", "tail"};
  return kNames[base::Index(part)];
}

PromptParts::PromptParts(const chat::Conversation& conversation, const std::vector<int>& tokens,
                         const chat::OutputFormat& format, const text::Tokenizer& tokenizer) {
  const TokenText text(tokens, tokenizer);
  const Json::Array& messages = conversation.json.Find("messages")->as_array();
  const auto content = [](const Json& message) { return chat::TextOf(message.Find("content")); };
  const auto first = std::find_if_not(messages.begin(), messages.end(), IsSystem);
  if (first == messages.end()) return;
  const std::size_t user = text.Find(content(*first), 0);
  system_end_ = user == kNoText ? 0 : text.TokenOf(user);
  if (const auto& tools = conversation.tools.tools; !tools.empty()) {
    // Templates write the tools before the system message's text or behind it.
    const std::size_t begin = text.Find(tools.front().name, 0);
    const std::size_t system = first == messages.begin() || begin == kNoText
                                   ? kNoText
                                   : text.Find(content(messages.front()), begin);
    tools_begin_ = text.TokenOf(begin);
    tools_end_ = text.TokenOf(std::min(system, user));
  }
  const std::size_t last = text.bytes().rfind(content(messages.back()).substr(0, kTextBytes));
  last_begin_ = last == kNoText ? system_end_ : text.TokenOf(last);
  if (!format.reasoning.known() || format.answer_open.empty()) return;
  for (std::size_t at = 0; (at = text.bytes().find(format.answer_open, at)) != kNoText;) {
    at += format.answer_open.size();
    answers_.push_back(text.TokenOf(at));
  }
}

PromptPart PromptParts::At(int token) const {
  if (token >= tools_begin_ && token < tools_end_) return PromptPart::kTools;
  if (token < system_end_) return PromptPart::kSystem;
  const bool reasoning =
      token < last_begin_ && std::any_of(answers_.begin(), answers_.end(), [token](int begin) {
        return token >= begin && token < begin + kReasoningTokens;
      });
  if (reasoning) return PromptPart::kReasoning;
  return token < last_begin_ ? PromptPart::kHistory : PromptPart::kTail;
}

}  // namespace thermocline::server
