#include "server/core/model_format.h"

#include <algorithm>
#include <unordered_set>

#include "server/chat/format_probe.h"

namespace thermocline::server {
namespace {

constexpr std::size_t kProbeBytesMax = std::size_t{1} << 20;  // for a conversation of a few words

}  // namespace

chat::OutputFormat FormatOfModel(const ChatFormatter& chat, const text::Tokenizer& tokenizer) {
  const model::Vocabulary& v = tokenizer.vocabulary();
  std::unordered_set<std::string> stops;
  for (int id = 0; id < v.size(); ++id)
    if (tokenizer.IsStop(id)) stops.insert(v.tokens[id]);
  chat::OutputFormat format = chat::LearnFormat({
      .render = [&](const Json& conversation) -> Result<std::string> {
        ASSIGN_OR_RETURN(const text::TemplateText text, chat.Render(conversation, kProbeBytesMax));
        return text.bytes();
      },
      .is_stop = [&](std::string_view text) { return stops.contains(std::string(text)); },
      .source = v.tool_template.empty() ? v.chat_template : v.tool_template,
  });
  format.answer_ends.assign(stops.begin(), stops.end());
  const bool opens = std::any_of(v.tokens.begin(), v.tokens.end(), [&](const std::string& token) {
    const std::size_t id = &token - v.tokens.data();
    return v.types[id] == model::TokenType::kControl && !token.empty() &&
           format.answer_open.starts_with(token);
  });
  if (!opens) format.answer_open.clear();
  const std::vector<std::string> texts = chat::TextsOf(format);
  for (int id = 0; id < v.size(); ++id) {
    if (v.types[id] != model::TokenType::kControl || v.tokens[id].empty()) continue;
    const bool used = std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
      return text.find(v.tokens[id]) != std::string::npos;
    });
    if (used) format.control_tokens.emplace_back(v.tokens[id], id);
  }
  std::stable_sort(format.control_tokens.begin(), format.control_tokens.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  return format;
}

}  // namespace thermocline::server
