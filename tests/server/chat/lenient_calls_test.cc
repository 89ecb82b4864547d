#include "server/chat/lenient_calls.h"

#include <gtest/gtest.h>

#include <array>

#include "engine/base/strings.h"
#include "tests/server/chat/answer_chunks.h"
#include "tests/server/chat/call_examples.h"

namespace thermocline::chat {
namespace {

constexpr std::size_t kAtOnce = 1 << 20;
const std::string kRome = R"({"name": "get_weather", "arguments": {"city": "Rome"}})";
const std::string kNowCall = R"({"name": "now", "arguments": {}})";

std::shared_ptr<OutputParserConfig> AnyFormat() { return LenientConfig(OutputFormat()); }

// The calls of an answer as "NAME ARGUMENTS;".
std::string CallsIn(const ParsedAnswer& parsed) {
  std::string out;
  for (const ToolCall& call : parsed.message.calls)
    out += StrCat(call.name, " ", call.arguments, ";");
  return out;
}

struct Case {
  std::string answer, calls, text, rule;
};

void ExpectCases(const std::vector<Case>& cases,
                 const std::shared_ptr<const OutputParserConfig>& config, bool cut = false) {
  for (const Case& each : cases) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{3}, kAtOnce}) {
      const ParsedAnswer parsed = ParseAnswer(config, each.answer, bytes, cut);
      EXPECT_EQ(CallsIn(parsed), each.calls) << bytes << ": " << each.answer;
      EXPECT_EQ(parsed.message.text, each.text) << bytes << ": " << each.answer;
      EXPECT_STREQ(CallRuleName(parsed.tally.rejected), each.rule.c_str()) << each.answer;
    }
  }
}

// A case whose whole answer stays text.
Case Text(const std::string& answer, const std::string& rule = "") {
  return {answer, "", answer, rule};
}

TEST(LenientCalls, TextThatLooksLikeACallStaysText) {
  ExpectCases(
      {Text(R"({"name": "Bingo", "age": 30})", "R2"),
       Text("```json\n{\"name\": \"thermocline\", \"version\": \"1.0\"}\n```", "R2"),
       Text("#include <functional>\nint main() {}"),
       Text("see [TOOL_CALLS] and <tool_call> in the manual"),
       Text("Inline `" + kRome + "` is code."),
       Text("Use it so:\n```json\n" + kRome + "\n```\nand wait.", "R6"),
       Text("```xml\n<tool_call>" + kRome + "</tool_call>\n```\nis an example.", "R6"),
       Text("[a link](https://a.example) and\n- [x] a task"), Text("[1] A. Author, A book."),
       Text("get_weather(city=\"Rome\") is a call."), Text("```python\nprint(now())\n```"),
       Text("{Answer: YES}"),
       Text("{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}}}"),
       Text("The object is\n" + kRome + "\nfor example.", "R5"),
       Text(std::string(201, 'x') + "\n" + kRome),
       Text("[get_weather(city=\"Rome\"), main()]", "R2"), Text("[get_weather(\"Rome\", 3)]", "R8"),
       Text("[get_weather(city=\"Ro\" + \"me\")]", "R8")},
      AnyFormat());
}

TEST(LenientCalls, TolerateOwnFormat) {
  const OutputFormat hermes = SmallFormats()[0];
  const std::string rome = "get_weather {\"city\": \"Rome\"};";
  const std::vector<Case> cases = {
      {"<tool_call>\n" + kRome, rome, "", ""},
      {"<tool_call>\n<tool_call>\n" + kRome + "\n</tool_call>", rome, "", ""},
      {"<tool_call>   " + kRome + "\n\n\n</tool_call>\n", rome, "", ""},
      {"<tool_call>\n{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"city\": "
       "\"Rome\"}}\n</tool_call>",
       rome, "", ""},
      {"Sure.\n<tool_call>{\"function\": " + kRome + "}</tool_call>", rome, "Sure.", ""},
      {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"", rome, "",
       ""}};
  ExpectCases(cases, LenientConfig(hermes));
  for (const Case& each : cases)
    EXPECT_EQ(ParseAnswer(LenientConfig(hermes), each.answer, 1).tally.form, CallForm::kTolerated)
        << each.answer;
  const ParsedAnswer text =
      ParseAnswer(LenientConfig(hermes),
                  R"(<tool_call>{"name": "get_weather", "arguments": "{\"city\":\"Rome\"}"})", 1);
  EXPECT_EQ(CallsIn(text), "get_weather {\"city\":\"Rome\"};");
  const OutputFormat qwen = SmallFormats()[3];
  const ParsedAnswer untagged = ParseAnswer(
      LenientConfig(qwen), "<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n", 1);
  EXPECT_EQ(CallsIn(untagged), "get_weather {\"city\":\"Rome\"};");
  EXPECT_EQ(untagged.tally.form, CallForm::kTolerated);
}

TEST(LenientCalls, SeveralCallsAreAllOrNone) {
  const std::string rome = "get_weather {\"city\":\"Rome\"};";
  const std::string fence = "```json\n", end = "\n```";
  ExpectCases({{fence + kRome + "\n" + kNowCall + end, rome + "now {};", "", ""},
               {fence + "[" + kRome + ", " + kNowCall + "]" + end, rome + "now {};", "", ""},
               {fence + kRome + ";" + kNowCall + end, rome + "now {};", "", ""},
               {fence + kRome + end + "\n" + fence + kNowCall + end, rome + "now {};", "", ""},
               Text(fence + kRome + "\n{\"name\": \"other\", \"arguments\": {}}" + end, "R2"),
               {"[get_weather(city=\"Rome\"), now()]", rome + "now {};", "", ""},
               {"[TOOL_CALLS]now{}[TOOL_CALLS]now{}", "now {};now {};", "", ""},
               {"<tool_call>" + kNowCall + "</tool_call>\n<tool_call>" + kNowCall + "</tool_call>",
                "now {};now {};", "", ""},
               {kNowCall + ",\n" + kNowCall + "\n", "now {};now {};", "", ""}},
              AnyFormat());
  std::string many = "[now()";
  for (int i = 1; i < kLenientCallsMax + 1; ++i) many += ", now()";
  ExpectCases({Text(many + "]", "R10")}, AnyFormat());
}

TEST(LenientCalls, OneCallIfTheRequestAllowsOne) {
  const auto config = AnyFormat();
  config->parallel = false;
  for (const std::string& answer :
       {"[" + kNowCall + ", " + kRome + "]", std::string("[now(), get_weather(city='Rome')]")})
    ExpectCases({{answer, "now {};", "", "R10"}}, config);
}

TEST(LenientCalls, LiteralsOfPythonAndJson) {
  const auto arguments = [](const std::string& literal) {
    return CallsIn(ParseAnswer(AnyFormat(), "[get_weather(city='x', more=" + literal + ")]", 1));
  };
  EXPECT_EQ(arguments("{'a': [True, None, -1.5e3, \"q\\\"\\n\"], \"b\": (1, 'é')}"),
            "get_weather {\"city\":\"x\",\"more\":{\"a\":[true,null,-1500.0,\"q\\\"\\n\"],"
            "\"b\":[1,\"é\"]}};");
  EXPECT_EQ(arguments("{\"a\": true, \"b\": null, }"),
            "get_weather {\"city\":\"x\",\"more\":{\"a\":true,\"b\":null}};");
  EXPECT_EQ(arguments("'''two\nlines'''"),
            "get_weather {\"city\":\"x\",\"more\":\"two\\nlines\"};");
  for (const char* none :
       {"f(1)", "a", "1 + 1", "[x for x in y]", "{1: 2}", "a.b", "-x", "not True"})
    EXPECT_EQ(arguments(none), "") << none;
  ExpectCases({{"[echo(\"hi\")]", "echo {\"text\":\"hi\"};", "", ""}}, AnyFormat());
}

TEST(LenientCalls, TaggedValuesHaveTheTypesOfTheSchema) {
  const auto parsed = ParseAnswer(
      AnyFormat(),
      "<function=get_weather><parameter=city>\n 5 \n</parameter><parameter=days>5</parameter>"
      "<parameter=more>{\"a\": 1}</parameter></function>",
      1);
  EXPECT_EQ(CallsIn(parsed), "get_weather {\"city\":\" 5 \",\"days\":5,\"more\":{\"a\":1}};");
  const auto text = ParseAnswer(
      AnyFormat(),
      "<function=get_weather><parameter=city>R</parameter><parameter=days>soon</parameter></function>",
      1);
  EXPECT_EQ(CallsIn(text), "get_weather {\"city\":\"R\",\"days\":\"soon\"};");
}

TEST(LenientCalls, TheEndOfAnAnswerClosesBracketsButNoString) {
  const std::string open = R"({"name": "get_weather", "arguments": {"city": "Rome")";
  ExpectCases({{open, R"(get_weather {"city": "Rome"};)", "", ""},
               {R"({"name": "get_weather", "arguments": {"city": "Ro)",
                R"(get_weather {"city": "Ro;)", "", ""},
               {R"([get_weather(city="Rome")", R"(get_weather {"city":"Rome"};)", "", ""},
               Text(R"([get_weather(city="Ro)", "R8"),
               Text("<function=get_weather><parameter=city>Ro", "R3")},
              AnyFormat());
  ExpectCases({{open, R"(get_weather {"city": "Rome";)", "", ""},
               Text(R"([get_weather(city="Rome")", "R8"),
               Text("```json\n" + kRome, "R6")},
              AnyFormat(), true);
}

TEST(LenientCalls, ArgumentsStreamOnceTheCallIsKnown) {
  const std::string answer = R"({"name": "echo", "arguments": {"text": ")" + std::string(100, 'a');
  OutputParser parser(AnyFormat());
  std::vector<MessagePart> parts;
  parser.Push(answer.substr(0, 50), parts);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].kind, MessagePart::Kind::kCallBegin);
  EXPECT_EQ(parts[0].name, "echo");
  EXPECT_FALSE(parts[0].id.empty());
  EXPECT_EQ(parts[1].text, answer.substr(30, 20));
  EXPECT_TRUE(parser.in_call());
}

TEST(LenientCalls, TextIsReleasedWhereItCannotBecomeACall) {
  for (const std::string& answer :
       {std::string("{\"name\": \"Bingo\""), std::string("```cpp"), std::string("{\"x"),
        std::string("[link]"), std::string("<function=main>"), std::string("```json\n{\"na\"")}) {
    OutputParser parser(AnyFormat());
    std::vector<MessagePart> parts;
    parser.Push(answer, parts);
    ASSERT_EQ(parts.size(), 1u) << answer;
    EXPECT_EQ(parts[0].text, answer);
  }
}

TEST(LenientCalls, TextBehindACallIsText) {
  ExpectCases({{kRome + "\n\nIt is sunny.", R"(get_weather {"city": "Rome"};)", "It is sunny.", ""},
               {R"({"name": "now", "arguments": {}, "age": 30})", "now {};", "", ""},
               {"\n\n" + kNowCall + "\n\n", "now {};", "", ""}},
              AnyFormat());
}

TEST(LenientCalls, AThoughtThatRehearsesACallHasNone) {
  OutputFormat format = SmallFormats()[0];
  format.call_ends_thought = false;
  const auto parsed =
      ParseAnswer(LenientConfig(format), "<think>\n" + kRome + "\n</think>\nNo.", 1);
  EXPECT_EQ(parsed.message.calls.size(), 0u);
  EXPECT_EQ(parsed.message.text, "No.");
}

TEST(LenientCalls, StrictToolsAreCalledUnderTheirGrammarAlone) {
  const auto config = AnyFormat();
  for (Tool& tool : config->tools) tool.strict = true;
  ExpectCases({Text(kRome, "R11"), Text("[now()]", "R11")}, config);
}

// Texts with all forms, joined and cut in odd places.
std::vector<std::string> OddTexts() {
  std::vector<std::string> out = {
      "{",
      "[",
      "`",
      "``````",
      "<",
      "\n\n",
      "{\"",
      "[[[[",
      "}}}}",
      "<tool_call><tool_call>",
      "<tool_call>\n{\"name\": \"x\"}\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}",
      std::string("{\"name\": \"now\", \"arguments\": {\"a\0b\": 1}}", 39),
      "{\"name\": \"now\", \"arguments\": {\"a\": \"\xff\xfe\"}} \xc3",
      "Text.\n" + kNowCall + "\n" + kNowCall + "}\n",
      "<think>\n[now()]</think>" + kNowCall,
      kNowCall + kNowCall + "text" + kNowCall,
      "[TOOL_CALLS]now[ARGS]{}x[TOOL_CALLS]now[ARGS]{}"};
  for (const CallExample& example : CallExamples()) {
    out.push_back(example.call + "\n" + example.text);
    out.push_back("Text.\n\n  " + example.call + ", " + example.call);
    out.push_back(example.text + example.call);
  }
  return out;
}

TEST(LenientCalls, ChunksDoNotChangeTheResult) {
  int index = 0;
  for (const OutputFormat& format : SmallFormats()) {
    const auto config = LenientConfig(format);
    for (const std::string& text : OddTexts()) {
      for (std::size_t size = 0; size <= text.size(); ++size) {
        const std::string start = text.substr(0, size);
        const bool cut = size % 2 != 0;
        const std::string whole = ParseAnswer(config, start, kAtOnce, cut).Described();
        for (const std::size_t bytes : {1, 3})
          ASSERT_EQ(ParseAnswer(config, start, bytes, cut).Described(), whole)
              << "format " << index << ", chunks of " << bytes << ": " << start;
      }
    }
    ++index;
  }
}

// Long texts of brackets, marks and open strings, byte by byte. A parser that looked at all bytes
// again for each would take minutes.
TEST(LenientCalls, HostileTextsStayText) {
  const std::size_t bytes = 60 << 10;
  const auto fill = [bytes](const std::string& part) {
    std::string out;
    while (out.size() < bytes) out += part;
    return out;
  };
  for (const OutputFormat& format : SmallFormats()) {
    for (const std::string& text :
         {fill("["), fill("{\"arguments\":"), "```json\n" + fill("{"), fill("<tool_call>"),
          "[get_weather(city=\"" + fill("x"), "[get_weather(more=" + fill("["),
          "{\"arguments\": {\"city\": \"" + fill("x"), fill("\n"), fill("`"),
          "<function=get_weather><parameter=city>" + fill("x"), fill("[TOOL_CALLS]")}) {
      const auto parsed = ParseAnswer(LenientConfig(format), text, 1);
      EXPECT_EQ(parsed.message.calls.size(), 0u) << text.substr(0, 50);
      EXPECT_EQ(parsed.message.text, text) << text.substr(0, 50);
    }
  }
}

}  // namespace
}  // namespace thermocline::chat
