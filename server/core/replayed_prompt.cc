#include "server/core/replayed_prompt.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/base/random.h"
#include "engine/base/strings.h"
#include "engine/sampling/thought_budget.h"
#include "server/chat/message_json.h"

namespace thermocline::server {
namespace {

constexpr std::size_t kNoPlace = std::string::npos;

// The message that the template renders in an answer's place. Names and ids of calls stay, because
// templates look for them when they render results.
Json MarkedMessage(const Json& message, const std::string& mark) {
  Json out = Json::Object{{"role", "assistant"}};
  const Json* calls = message.Find("tool_calls");
  if (calls == nullptr || !calls->is_array() || calls->as_array().empty()) {
    out.Set("content", mark);
    return out;
  }
  Json::Array marked;
  for (const Json& each : calls->as_array()) {
    Json call = each;
    Json function = Json::Object{{"name", chat::TextOf(each.Find("function")->Find("name"))},
                                 {"arguments", Json::Object{{mark, ""}}}};
    call.Set("function", std::move(function));
    marked.push_back(std::move(call));
  }
  out.Set("content", "");
  out.Set("tool_calls", std::move(marked));
  return out;
}

bool HasFunctions(const Json& message) {
  const Json* calls = message.Find("tool_calls");
  if (calls == nullptr || !calls->is_array()) return true;
  return std::all_of(calls->as_array().begin(), calls->as_array().end(), [](const Json& call) {
    const Json* function = call.Find("function");
    return function != nullptr && function->is_object();
  });
}

// The first position in [from, to) of one of `words` in the template's own bytes, or npos.
std::size_t FindFirstOwn(const text::TemplateText& text, const std::vector<std::string>& words,
                         std::size_t from, std::size_t to = kNoPlace) {
  const std::string_view bytes = std::string_view(text.bytes()).substr(0, to);
  std::size_t first = kNoPlace;
  for (const std::string& word : words) {
    std::size_t at = word.empty() ? kNoPlace : bytes.find(word, from);
    while (at < first && !text.IsOwn(at, at + word.size())) at = bytes.find(word, at + 1);
    first = std::min(first, at);
  }
  return first;
}

// The position of the last `word` in the template's own bytes that ends at or before `limit`, or
// npos.
std::size_t FindLastOwn(const text::TemplateText& text, const std::string& word,
                        std::size_t limit) {
  if (word.empty() || word.size() > limit) return kNoPlace;
  std::size_t at = text.bytes().rfind(word, limit - word.size());
  while (at != kNoPlace && !text.IsOwn(at, at + word.size()))
    at = at == 0 ? kNoPlace : text.bytes().rfind(word, at - 1);
  return at;
}

// The reasoning that a client sends back with an answer, without blanks around it; "" = none.
std::string ReasoningOf(const Json::Array& messages, const chat::PastAnswer& past) {
  constexpr std::string_view kBlank = " \t\r\n";
  std::string text;
  for (int i = past.first; i < past.first + past.count; ++i)
    for (const char* field : {"reasoning_content", "reasoning", "thinking"})
      if (text.empty()) text = chat::TextOf(messages[i].Find(field));
  const std::size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

// False: the tokens are of another vocabulary, or the client has edited their reasoning.
bool IsFaithful(const std::vector<int>& tokens, const std::string& reasoning,
                const text::Tokenizer& tokenizer) {
  const int size = tokenizer.vocabulary().size();
  if (std::any_of(tokens.begin(), tokens.end(), [size](int t) { return t < 0 || t >= size; }))
    return false;
  if (reasoning.empty()) return true;
  const std::string text = tokenizer.Decode(tokens, true);
  return reasoning.size() <= text.size() && sampling::StreamSearch(reasoning).IsIn(text);
}

}  // namespace

std::size_t FindAnswerOpening(const text::TemplateText& prompt, const chat::OutputFormat& format) {
  const std::size_t open = FindLastOwn(prompt, format.answer_open, prompt.size());
  const bool ended = open != kNoPlace && FindFirstOwn(prompt, format.answer_ends, open) != kNoPlace;
  return ended ? kNoPlace : open;
}

ReplayedPrompt::ReplayedPrompt(const chat::Conversation& conversation, const chat::AnswerKeys& keys,
                               chat::TokenMemory& memory) {
  const Json::Array& messages = conversation.json.Find("messages")->as_array();
  std::vector<chat::PastAnswer> found;
  for (const chat::PastAnswer& past : keys.answers) {
    const bool continued =
        conversation.continues_last && past.first + past.count == base::IntSize(messages);
    if (continued || !HasFunctions(messages[past.first + past.count - 1])) continue;
    const auto tokens = memory.Find(past.key);
    if (tokens == nullptr) continue;
    if (nonce_.empty()) nonce_ = "replay" + base::RandomLetters(20);
    answers_.push_back({.mark = StrCat(nonce_, "n", answers_.size(), "e"),
                        .tokens = tokens,
                        .reasoning = ReasoningOf(messages, past)});
    found.push_back(past);
  }
  if (answers_.empty()) return;
  marked_ = conversation;
  Json::Array& marked = marked_.json.FindRaw("messages")->array();
  // From the last one on, so that the positions of earlier messages stay.
  for (std::size_t i = found.size(); i-- > 0;) Mark(found[i], marked, answers_[i]);
}

void ReplayedPrompt::Mark(const chat::PastAnswer& past, Json::Array& messages,
                          const Answer& answer) const {
  const auto first = messages.begin() + past.first;
  const auto last = first + past.count - 1;
  *last = MarkedMessage(*last, answer.mark);
  messages.erase(first, last);
}

std::optional<std::vector<ReplayedPrompt::Part>> ReplayedPrompt::FindParts(
    const text::TemplateText& rendered, const chat::OutputFormat& format) const {
  std::vector<Part> parts;
  std::size_t behind = 0;  // the last part's end
  std::size_t mark = rendered.bytes().find(answers_[0].mark);
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    if (mark == kNoPlace || mark != rendered.bytes().find(nonce_, behind)) return std::nullopt;
    // Each search ends at the next mark, so that all of them read the text a few times.
    const std::size_t next = i + 1 < answers_.size()
                                 ? rendered.bytes().find(answers_[i + 1].mark, mark)
                                 : rendered.size();
    const std::size_t begin = FindLastOwn(rendered, format.answer_open, mark);
    const std::size_t end = FindFirstOwn(rendered, format.answer_ends, mark, next);
    if (begin == kNoPlace || begin < behind || end == kNoPlace) return std::nullopt;
    if (FindFirstOwn(rendered, {format.answer_open}, mark, end) != kNoPlace) return std::nullopt;
    parts.push_back({.begin = begin, .end = end});
    behind = end;
    mark = next;
  }
  // A template may show a mark once more, for example as the name of a call beside its result.
  if (rendered.bytes().find(nonce_, behind) != kNoPlace) return std::nullopt;
  return parts;
}

std::optional<std::vector<int>> ReplayedPrompt::Encode(const text::TemplateText& rendered,
                                                       const chat::OutputFormat& format,
                                                       const text::Tokenizer& tokenizer) const {
  for (const Answer& answer : answers_)
    if (!IsFaithful(*answer.tokens, answer.reasoning, tokenizer)) return std::nullopt;
  const auto parts = FindParts(rendered, format);
  if (!parts.has_value()) return std::nullopt;
  std::vector<int> out;
  const auto append = [&out](const std::vector<int>& tokens) {
    out.insert(out.end(), tokens.begin(), tokens.end());
  };
  std::size_t at = 0;
  for (std::size_t i = 0; i < parts->size(); ++i) {
    // The text between two answers begins with a control token, so its tokens do not depend on what
    // stands before it.
    append(tokenizer.Encode(rendered.Part(at, (*parts)[i].begin)));
    append(*answers_[i].tokens);
    at = (*parts)[i].end;
  }
  append(tokenizer.Encode(rendered.Part(at, rendered.size())));
  return out;
}

int ReplayedPrompt::tokens() const {
  int tokens = 0;
  for (const Answer& answer : answers_) tokens += base::IntSize(*answer.tokens);
  return tokens;
}

}  // namespace thermocline::server
