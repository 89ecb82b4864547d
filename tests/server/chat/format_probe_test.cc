#include "server/chat/format_probe.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/base/strings.h"
#include "server/chat/conversation.h"
#include "server/chat/output_parser.h"
#include "tests/server/chat/known_templates.h"

namespace thermocline::chat {
namespace {

const Tool kWeather = {
    .name = "get_weather",
    .description = "Weather",
    .parameters = *base::ParseJson(R"({"type": "object", "properties": {"city": {"type": "string"},
        "days": {"type": "integer"}, "more": {"type": "object"}}, "required": ["city"]})")};
const Tool kNow = {.name = "now", .description = "Time"};

Json CallsMessage(const std::vector<ToolCall>& calls) {
  Json::Array list;
  for (const ToolCall& call : calls) {
    list.push_back(Json::Object{
        {"id", call.id},
        {"type", "function"},
        {"function",
         Json::Object{{"name", call.name}, {"arguments", *base::ParseJson(call.arguments)}}}});
  }
  return Json::Object{{"role", "assistant"}, {"content", ""}, {"tool_calls", std::move(list)}};
}

// The template's text for an answer with these calls; "" if it rejects them.
std::string AnswerOf(const KnownTemplate& known, const OutputFormat& format,
                     const std::vector<ToolCall>& calls) {
  const Json user = Json::Object{{"role", "user"}, {"content", "Hello there"}};
  const ToolRequest tools{.tools = {kWeather, kNow}, .choice = {}};
  const auto text = [&](Json::Array messages, bool generate) {
    Conversation conversation{.json = Json::Object{{"messages", std::move(messages)},
                                                   {"add_generation_prompt", generate}},
                              .tools = tools};
    const auto rendered = known.Render(ForTemplate(format, conversation));
    return rendered.ok() ? *rendered : "";
  };
  const std::string whole = text({user, CallsMessage(calls)}, false);
  // The start of the answer, or a position shortly before.
  const std::size_t begin =
      format.calls.at_start ? whole.rfind(format.calls.trigger) : whole.rfind("Hello there");
  return begin == std::string::npos ? "" : whole.substr(begin);
}

std::vector<ToolCall> Parsed(const OutputFormat& format, const std::string& text,
                             std::size_t step) {
  const auto config = std::make_shared<const OutputParserConfig>(
      OutputParserConfig{.format = std::make_shared<const OutputFormat>(format),
                         .calls = true,
                         .tools = {kWeather, kNow}});
  OutputParser parser(config);
  std::vector<MessagePart> parts;
  for (std::size_t at = 0; at < text.size(); at += step) parser.Push(text.substr(at, step), parts);
  parser.Finish(false, parts);
  WholeMessage message;
  message.Add(parts);
  return message.calls;
}

void ExpectSame(const std::vector<ToolCall>& got, const std::vector<ToolCall>& expected,
                const std::string& where) {
  ASSERT_EQ(got.size(), expected.size()) << where;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].name, expected[i].name) << where;
    const auto arguments = base::ParseJson(got[i].arguments);
    ASSERT_TRUE(arguments.ok()) << where << ": " << got[i].arguments;
    EXPECT_EQ(arguments->Dump(), base::ParseJson(expected[i].arguments)->Dump()) << where;
    EXPECT_FALSE(got[i].id.empty()) << where;
  }
}

const std::vector<ToolCall> kNested = {
    {"call12345", "get_weather",
     R"({"city": "Rome \"x\" <b> é", "days": 3, "more": {"a": [1, {"b": "}"}]}})"}};
// Templates that write arguments one by one write objects as Python does.
const std::vector<ToolCall> kFlatCall = {
    {"call12345", "get_weather", R"({"city": "Rome \"x\" <b> é", "days": 3})"}};
const std::vector<ToolCall> kBareCall = {{"call12345", "now", "{}"}};
const std::vector<ToolCall> kThreeCalls = {
    {"call12345", "get_weather", R"({"city": "Rome"})"},
    {"call67890", "get_weather", R"({"city": "Oslo", "days": 1})"},
    {"call24680", "now", "{}"}};

TEST(FormatProbe, WhatTemplatesWriteIsReadBack) {
  const std::vector<KnownTemplate> all = TemplatesOfPeer();
  if (all.empty()) GTEST_SKIP() << "THERMOCLINE_PEER does not name the peer's folder";
  int learned = 0;
  for (const KnownTemplate& known : all) {
    const OutputFormat format = known.Format();
    if (!format.writes_calls || format.harmony) continue;
    ++learned;
    for (const auto& calls :
         {format.calls.tagged.has_value() ? kFlatCall : kNested, kBareCall, kThreeCalls}) {
      if (calls.size() > 1 && format.calls.next.empty()) continue;
      const std::string text = AnswerOf(known, format, calls);
      for (const std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{1000}})
        ExpectSame(Parsed(format, text, step), calls, known.name + ": " + text);
    }
  }
  EXPECT_GE(learned, 50);
}

// An answer can only be replayed if nothing else is in its turn.
TEST(FormatProbe, TurnsThatHoldResultsHaveNoOpening) {
  const auto templates = TemplatesOfPeer();
  if (templates.empty()) GTEST_SKIP() << "THERMOCLINE_PEER is not set";
  int opened = 0, shared = 0;
  for (const KnownTemplate& known : templates) {
    const std::string open = known.Format().answer_open;
    opened += open.empty() ? 0 : 1;
    const bool holds_results =
        known.name == "Apertus-8B-Instruct" || known.name == "google-gemma-4-31B-it";
    shared += holds_results ? 1 : 0;
    EXPECT_TRUE(!holds_results || open.empty()) << known.name;
    EXPECT_TRUE(known.name != "Qwen3.5-4B" || open == "<|im_start|>assistant\n") << open;
  }
  EXPECT_GE(shared, 2);
  EXPECT_GE(opened, 20);
}

}  // namespace
}  // namespace thermocline::chat
