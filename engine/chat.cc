#include "engine/chat.h"

#include "engine/text/tokenizer.h"

namespace thermocline {

ChatFormatter::ChatFormatter(const text::Tokenizer& tokenizer,
                             std::unique_ptr<text::ChatTemplate> chat_template,
                             std::unique_ptr<text::ChatTemplate> tool_template)
    : tokenizer_(tokenizer),
      template_(std::move(chat_template)),
      tool_template_(std::move(tool_template)) {}
ChatFormatter::~ChatFormatter() = default;

Result<std::unique_ptr<ChatFormatter>> ChatFormatter::Create(const text::Tokenizer& tokenizer) {
  const std::string& source = tokenizer.vocabulary().chat_template;
  if (source.empty()) return base::FailedPrecondition("the model file holds no chat template");
  ASSIGN_OR_RETURN(auto chat_template, text::ChatTemplate::Parse(source));
  std::unique_ptr<text::ChatTemplate> tool_template;
  if (const std::string& tools = tokenizer.vocabulary().tool_template; !tools.empty()) {
    ASSIGN_OR_RETURN(tool_template, text::ChatTemplate::Parse(tools));
  }
  return std::unique_ptr<ChatFormatter>(
      new ChatFormatter(tokenizer, std::move(chat_template), std::move(tool_template)));
}

Result<text::TemplateText> ChatFormatter::Render(const Json& conversation,
                                                 std::size_t bytes_max) const {
  const model::Vocabulary& v = tokenizer_.vocabulary();
  const auto token_text = [&](int id) { return id < 0 ? Json("") : Json(v.tokens[id]); };
  Json own = Json::Object{{"bos_token", token_text(v.bos)}, {"eos_token", token_text(v.eos)}};
  if (conversation.FindRaw("add_generation_prompt") == nullptr)
    own.Set("add_generation_prompt", true);
  const Json* tools = conversation.Find("tools");
  const bool has_tools = tools != nullptr && tools->is_array() && !tools->as_array().empty();
  return (has_tools && tool_template_ != nullptr ? tool_template_ : template_)
      ->Render(conversation, own, bytes_max);
}

std::vector<int> ChatFormatter::Tokenize(const text::TemplateText& prompt) const {
  return WithBos(tokenizer_.Encode(prompt));
}

std::vector<int> ChatFormatter::WithBos(std::vector<int> tokens) const {
  const model::Vocabulary& v = tokenizer_.vocabulary();
  // Templates either write the beginning-of-sequence token themselves or leave it to the tokenizer.
  if (v.add_bos && v.bos >= 0 && (tokens.empty() || tokens.front() != v.bos)) {
    tokens.insert(tokens.begin(), v.bos);
  }
  return tokens;
}

Result<std::vector<int>> ChatFormatter::Encode(const Json& conversation) const {
  ASSIGN_OR_RETURN(const text::TemplateText prompt, Render(conversation));
  return Tokenize(prompt);
}

}  // namespace thermocline
