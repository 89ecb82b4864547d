// No field of a request becomes a control token, alone or joined to adjacent text, in any template.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <regex>
#include <set>

#include "engine/chat.h"
#include "engine/text/tokenizer.h"
#include "server/chat/conversation.h"
#include "tests/server/chat/known_templates.h"

namespace thermocline::chat {
namespace {

// The text of a field, by its number.
using Filler = std::function<std::string(int)>;
constexpr int kFields = 22;

// The variant of a conversation; templates reject some of them.
struct Shape {
  bool words = true;    // an answer has text and reasoning besides its calls
  bool options = true;  // chat_template_kwargs
  bool adapted = true;  // adapted to the detected format; else as clients send it
};
constexpr std::array<Shape, 4> kShapes = {
    {{}, {.options = false}, {.words = false}, {.adapted = false}}};

Json MessagesOf(const Filler& text, const Shape& shape) {
  const Json call = Json::Object{
      {"id", text(4)},
      {"type", "function"},
      {"function",
       Json::Object{{"name", text(5)},
                    {"arguments", Json::Object{{text(6), text(7)},
                                               {"more", Json::Object{{text(8), text(9)}}}}}}}};
  return Json::Array{
      Json::Object{{"role", "system"}, {"content", text(0)}},
      Json::Object{{"role", "user"}, {"content", text(1)}, {"name", text(10)}},
      Json::Object{{"role", "assistant"},
                   {"content", shape.words ? text(2) : ""},
                   {"reasoning_content", text(3)},
                   {"tool_calls", Json::Array{call}}},
      Json::Object{
          {"role", "tool"}, {"content", text(11)}, {"name", text(5)}, {"tool_call_id", text(4)}},
      Json::Object{{"role", "assistant"}, {"content", text(12)}},
      Json::Object{{"role", "user"}, {"content", text(13)}}};
}

Tool ToolOf(const Filler& text) {
  const Json inner =
      Json::Object{{"type", "object"},
                   {"properties", Json::Object{{text(19), Json::Object{{"type", "string"}}}}}};
  const Json properties = Json::Object{{text(6), Json::Object{{"type", "string"},
                                                              {"description", text(15)},
                                                              {"enum", Json::Array{text(16)}},
                                                              {"default", text(17)},
                                                              {text(18), text(18)}}},
                                       {"more", inner}};
  return {.name = text(5),
          .description = text(14),
          .parameters = Json::Object{{"type", "object"},
                                     {"properties", properties},
                                     {"required", Json::Array{text(6), text(18)}}}};
}

Conversation ConversationOf(const Filler& text, const Shape& shape) {
  Json json = Json::Object{{"messages", MessagesOf(text, shape)}};
  if (shape.options) {
    for (const char* name :
         {"reasoning_effort", "date_string", "datetime", "functions", "thinking"})
      json.Set(name, text(20));
    json.Set("custom", Json::Object{{text(21), text(21)}});
  }
  return {.json = std::move(json), .tools = {.tools = {ToolOf(text)}, .choice = {}}};
}

std::string Harmless(int field) { return std::string("plain") + char('a' + field); }

// All texts in the template's source that look like control tokens.
std::set<std::string> SpelledIn(const std::string& source) {
  static const std::regex kToken(
      R"(<[^\s<>'"{}%=+~\\]{2,40}>|\[/?[A-Z_]{3,20}\]|\]~!?b\[|\[e~\[|\]<\][a-z]+\[>\[)");
  std::set<std::string> out = {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|tool|>"};
  for (std::sregex_iterator at(source.begin(), source.end(), kToken), end; at != end; ++at)
    out.insert(at->str());
  return out;
}

// Templates search for these in answers and write their own.
bool IsLookedFor(const std::string& token) {
  return token.find("hink") != std::string::npos || token.find("THINK") != std::string::npos;
}

std::unique_ptr<text::Tokenizer> TokenizerFor(const KnownTemplate& known,
                                              const std::set<std::string>& control) {
  model::Vocabulary v;
  v.kind = model::VocabularyKind::kSentencePiece;
  v.chat_template = known.source;
  const auto add = [&v](const std::string& token, model::TokenType type) {
    v.tokens.push_back(token);
    v.types.push_back(type);
    v.scores.push_back(0);
  };
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte)
    add(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", model::TokenType::kByte);
  for (const std::string& token : control) {
    if (token == "<s>") v.bos = v.size();
    if (token == "</s>") v.eos = v.size();
    add(token, model::TokenType::kControl);
  }
  auto tokenizer = text::Tokenizer::Create(v);
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

// A template with a model, whose control tokens are all those in the template's source.
class Model {
 public:
  explicit Model(const KnownTemplate& known)
      : format_(known.Format()),
        control_(SpelledIn(known.source)),
        tokenizer_(TokenizerFor(known, control_)),
        formatter_(*ChatFormatter::Create(*tokenizer_)) {
    while (shape_ + 1 < kShapes.size() && !Render(Harmless).ok()) ++shape_;
  }

  const std::set<std::string>& control() const { return control_; }
  // Otherwise calls or tools are in a message's text, which has no control tokens.
  bool writes_all() const { return format_.writes_calls && format_.lists_tools; }
  Result<text::TemplateText> Render(const Filler& text) const {
    const Conversation conversation = ConversationOf(text, kShapes[shape_]);
    if (kShapes[shape_].adapted) return formatter_->Render(ForTemplate(format_, conversation));
    Json json = conversation.json;
    json.Set("tools", ToolsJson(conversation.tools.tools));
    return formatter_->Render(json);
  }
  std::vector<int> Read(const text::TemplateText& prompt) const {
    return OnlyControl(tokenizer_->Encode(prompt));
  }
  // The control tokens that are found if the origin of the text is ignored.
  std::vector<int> ReadAll(const text::TemplateText& prompt) const {
    return OnlyControl(tokenizer_->Encode(prompt.bytes(), {.control_tokens = true}));
  }

 private:
  static std::vector<int> OnlyControl(std::vector<int> tokens) {
    std::erase_if(tokens, [](int token) { return token < 256; });
    return tokens;
  }

  OutputFormat format_;
  std::set<std::string> control_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<ChatFormatter> formatter_;
  std::size_t shape_ = 0;  // the first that the template accepts
};

// `token` without some characters at its ends, which adjacent text in a template or another field
// may supply.
std::set<std::string> PartsOf(const std::string& token) {
  std::set<std::string> out;
  for (std::size_t front = 0; front < 4; ++front)
    for (std::size_t back = 0; back < 4 && front + back < token.size(); ++back)
      out.insert(token.substr(front, token.size() - front - back));
  std::erase_if(out,
                [](const std::string& part) { return base::ReplaceInvalidUtf8(part) != part; });
  return out;
}

// Expects the same control tokens as with harmless fields.
void ExpectNone(const Model& model, const std::vector<int>& expected, const Filler& text) {
  const auto prompt = model.Render(text);
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  EXPECT_EQ(model.Read(*prompt), expected) << text(1) << " " << text(2) << "\n" << prompt->bytes();
}

void TryToken(const Model& model, const std::vector<int>& expected, const std::string& token) {
  for (const std::string& part : PartsOf(token))
    if (part != token || !IsLookedFor(token))
      ExpectNone(model, expected, [&](int) { return part; });
  for (std::size_t cut = 1; cut < token.size(); ++cut) {
    const std::string first = token.substr(0, cut), rest = token.substr(cut);
    if (base::ReplaceInvalidUtf8(first) == first)
      ExpectNone(model, expected, [&](int field) { return field % 2 == 0 ? first : rest; });
  }
  for (int field = 0; field < kFields && !IsLookedFor(token); ++field)
    ExpectNone(model, expected, [&](int at) { return at == field ? token : Harmless(at); });
}

TEST(ControlTokens, NoFieldOfARequestBecomesOneInAnyTemplate) {
  const std::vector<KnownTemplate> all = TemplatesOfPeer();
  if (all.empty()) GTEST_SKIP() << "THERMOCLINE_PEER does not name the peer's folder";
  for (const KnownTemplate& known : all) {
    SCOPED_TRACE(known.name);
    const Model model(known);
    const auto harmless = model.Render(Harmless);
    ASSERT_TRUE(harmless.ok()) << harmless.status().message();
    const std::vector<int> expected = model.Read(*harmless);
    if (model.writes_all()) {
      EXPECT_EQ(expected, model.ReadAll(*harmless)) << "its own control tokens are read";
    }
    for (const std::string& token : model.control()) {
      TryToken(model, expected, token);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace thermocline::chat
