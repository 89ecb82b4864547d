#include "server/chat/output_format.h"

#include <algorithm>

namespace thermocline::chat {

std::string TaggedArguments::TextEnd() const {
  const auto [a, b] =
      std::mismatch(text.next.begin(), text.next.end(), text.close.begin(), text.close.end());
  return std::string(text.next.begin(), a);
}

std::vector<std::string> TextsOf(const OutputFormat& format, bool calls) {
  std::vector<std::string> texts = {format.reasoning.open, format.reasoning.close,
                                    format.content_open, format.content_close};
  if (format.harmony)
    texts.insert(texts.end(), {"<|start|>", "<|channel|>", "<|message|>", "<|end|>",
                               "<|constrain|>", "<|call|>", "<|return|>"});
  if (!calls) return texts;
  texts.insert(texts.end(), {format.calls.trigger, format.calls.end});
  for (const CallPieces* pieces : {&format.calls.first, &format.calls.next})
    for (const CallPiece& piece : *pieces) texts.push_back(piece.text);
  if (const auto& tagged = format.calls.tagged) {
    texts.insert(texts.end(),
                 {tagged->open, tagged->empty, tagged->text.open, tagged->text.next,
                  tagged->text.close, tagged->other.open, tagged->other.next, tagged->other.close});
  }
  return texts;
}

std::vector<int> ShownTokens(const OutputFormat& format, bool calls) {
  const std::vector<std::string> texts = TextsOf(format, calls);
  std::vector<int> out;
  for (const auto& token : format.control_tokens) {
    const bool used = std::any_of(texts.begin(), texts.end(), [&token](const std::string& text) {
      return text.find(token.first) != std::string::npos;
    });
    if (used) out.push_back(token.second);
  }
  return out;
}

}  // namespace thermocline::chat
