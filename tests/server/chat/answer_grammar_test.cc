#include "server/chat/answer_grammar.h"

#include <gtest/gtest.h>

#include "engine/grammar/grammar_compiler.h"
#include "server/chat/conversation.h"
#include "server/chat/output_parser.h"
#include "tests/engine/grammar/small_vocabulary.h"
#include "tests/server/chat/known_templates.h"

namespace thermocline::chat {
namespace {

const ToolRequest kTools = {
    .tools = {{.name = "get_weather",
               .description = "Weather",
               .parameters = *base::ParseJson(
                   R"({"type": "object", "properties": {"city": {"type": "string"},
                       "days": {"type": "integer"}, "unit": {"enum": ["C", "F"], "type": "string"}},
                       "required": ["city"]})")},
              {.name = "now", .description = "Time"}},
    .choice = {}};
const std::vector<ToolCall> kCalls = {
    {"call12345", "get_weather", R"({"city": "Rome \"x\" <b> é", "days": 3})"}};
const std::vector<ToolCall> kMany = {
    {"call12345", "get_weather", R"({"city": "Rome"})"},
    {"call67890", "now", "{}"},
    {"call24680", "get_weather", R"({"city": "Oslo", "days": 1})"}};

class Compiled {
 public:
  Compiled(const OutputFormat& format, const AnswerRules& rules) {
    const auto spec = GrammarOfAnswer(format, rules);
    EXPECT_TRUE(spec.ok()) << spec.status().message();
    if (!spec.ok() || !spec->has_value()) return;
    const auto compiled = compiler_.Compile(**spec);
    EXPECT_TRUE(compiled.ok()) << compiled.status().message() << "\n" << (*spec)->text;
    if (compiled.ok()) grammar_ = *compiled;
  }
  bool Takes(const std::string& text) const { return grammar::Takes(grammar_, text); }
  bool free() const { return grammar_ == nullptr; }

 private:
  std::unique_ptr<text::Tokenizer> tokenizer_ = grammar::SmallTokenizer({});
  grammar::GrammarCompiler compiler_{*tokenizer_, tokenizer_->vocabulary().size(),
                                     GrammarLimits{.compile_ms_max = 600'000}};
  std::shared_ptr<const grammar::CompiledGrammar> grammar_;
};

ToolRequest With(ToolChoice::Mode mode, const std::string& name = "", bool parallel = true) {
  ToolRequest out = kTools;
  out.choice = {.mode = mode, .name = name, .parallel = parallel};
  return out;
}

// A conversation's calls as the template writes them, from their start.
std::string WrittenCalls(const KnownTemplate& known, const OutputFormat& format,
                         const std::vector<ToolCall>& calls) {
  Json::Array list;
  for (const ToolCall& call : calls)
    list.push_back(Json::Object{
        {"id", call.id},
        {"type", "function"},
        {"function",
         Json::Object{{"name", call.name}, {"arguments", *base::ParseJson(call.arguments)}}}});
  const Json user = Json::Object{{"role", "user"}, {"content", "Hello"}};
  const Json answer =
      Json::Object{{"role", "assistant"}, {"content", ""}, {"tool_calls", std::move(list)}};
  const Conversation conversation{.json = Json::Object{{"messages", Json::Array{user, answer}},
                                                       {"add_generation_prompt", false}},
                                  .tools = kTools};
  const auto text = known.Render(ForTemplate(format, conversation));
  if (!text.ok()) return "";
  const std::size_t begin = text->rfind(format.calls.first[0].text);
  return begin == std::string::npos ? "" : text->substr(begin);
}

// True if the grammar accepts a prefix of `text` that ends the calls.
bool TakesABeginningOf(const Compiled& grammar, const std::string& text, std::size_t least) {
  for (std::size_t size = text.size(); size > least; --size)
    if (grammar.Takes(text.substr(0, size))) return true;
  return false;
}

TEST(AnswerGrammar, TakesWhatTemplatesWrite) {
  const std::vector<KnownTemplate> all = TemplatesOfPeer();
  if (all.empty()) GTEST_SKIP() << "THERMOCLINE_PEER does not name the peer's folder";
  for (const KnownTemplate& known : all) {
    const OutputFormat format = known.Format();
    if (format.harmony) continue;
    SCOPED_TRACE(known.name);
    const Compiled required(format, {.tools = With(ToolChoice::Mode::kRequired)});
    EXPECT_FALSE(required.Takes("Hello."));
    if (!format.calls.tagged.has_value()) {
      EXPECT_TRUE(required.Takes(TextOfCalls(format.calls, kCalls)))
          << TextOfCalls(format.calls, kCalls);
    }
    if (!format.writes_calls) continue;
    const std::string written = WrittenCalls(known, format, kCalls);
    // The template, not the format, puts CDATA around texts.
    if (written.find("CDATA") != std::string::npos) continue;
    EXPECT_TRUE(TakesABeginningOf(required, written, format.calls.first[0].text.size())) << written;
  }
}

OutputFormat Hermes() {
  KnownTemplate known = ParsedTemplate(
      "plain",
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% "
      "endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  return known.Format();
}

TEST(AnswerGrammar, AutomaticCallsFollowAnyText) {
  const Compiled grammar(Hermes(), {.tools = kTools});
  EXPECT_TRUE(grammar.Takes("Hello <tool> {\"name\": \"x\"}"));
  EXPECT_TRUE(grammar.Takes(""));
  const std::string calls = TextOfCalls(Hermes().calls, kMany);
  EXPECT_TRUE(grammar.Takes(calls));
  EXPECT_TRUE(grammar.Takes("Let me see.\n" + calls));
  EXPECT_FALSE(grammar.Takes(calls + " and more"));
  EXPECT_FALSE(grammar.Takes("<tool_call>\nno call"));
  EXPECT_FALSE(
      grammar.Takes("<tool_call>\n{\"name\": \"nobody\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(
      grammar.Takes("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>"));
}

TEST(AnswerGrammar, ChoicesAreKept) {
  const OutputFormat format = Hermes();
  const std::string weather = TextOfCalls(format.calls, kCalls),
                    now = TextOfCalls(format.calls, {kMany[1]}),
                    many = TextOfCalls(format.calls, kMany);
  const Compiled named(format, {.tools = With(ToolChoice::Mode::kRequired, "now")});
  EXPECT_TRUE(named.Takes(now));
  EXPECT_FALSE(named.Takes(weather));
  const Compiled one(format, {.tools = With(ToolChoice::Mode::kRequired, "", false)});
  EXPECT_TRUE(one.Takes(weather));
  EXPECT_FALSE(one.Takes(many));
  const Compiled none(format, {.tools = With(ToolChoice::Mode::kNone)});
  EXPECT_TRUE(none.Takes("Hello."));
  EXPECT_FALSE(none.Takes(now));
  const Compiled free(format, {});
  EXPECT_TRUE(free.free());
}

TEST(AnswerGrammar, ReasoningComesFirst) {
  OutputFormat format = Hermes();
  format.reasoning = {"<think>", "</think>"};
  const GrammarSpec answer{.kind = GrammarSpec::Kind::kRegex, .text = "yes|no", .field = "x"};
  const Compiled may(format, {.may_reason = true, .answer = answer});
  EXPECT_TRUE(may.Takes("yes"));
  EXPECT_TRUE(may.Takes("<think>maybe {</think>\n\nno"));
  EXPECT_FALSE(may.Takes("<think>maybe"));
  const Compiled inside(format, {.in_reasoning = true, .answer = answer});
  EXPECT_TRUE(inside.Takes("maybe</think>no"));
  EXPECT_FALSE(inside.Takes("yes"));
}

TEST(AnswerGrammar, ToolsThatCannotBeCompiled) {
  OutputFormat format = Hermes();
  const Json schema = *base::ParseJson(R"({"type": "object", "not": {"required": ["x"]}})");
  AnswerRules rules{.tools = {.tools = {{.name = "odd", .description = "", .parameters = schema}},
                              .choice = {.mode = ToolChoice::Mode::kRequired}}};
  const Compiled lenient(format, rules);
  EXPECT_TRUE(lenient.Takes(TextOfCalls(format.calls, {{"", "odd", R"({"x": [1, null]})"}})));
  rules.tools.tools[0].strict = true;
  const auto spec = GrammarOfAnswer(format, rules);
  ASSERT_TRUE(spec.ok());
  const auto tokenizer = grammar::SmallTokenizer({});
  grammar::GrammarCompiler compiler(*tokenizer, tokenizer->vocabulary().size(), GrammarLimits());
  const auto compiled = compiler.Compile(**spec);
  EXPECT_EQ(compiled.status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(compiled.status().field(), "tools");
}

}  // namespace
}  // namespace thermocline::chat
