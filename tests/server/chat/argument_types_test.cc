// Types of tools' arguments, and the bounds of finding and writing them.
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "server/chat/argument_forms.h"
#include "server/chat/rule_list.h"
#include "server/chat/tagged_grammar.h"

namespace thermocline::chat {
namespace {

Tool ToolWith(const std::string& parameters) {
  const auto json = base::ParseJson(parameters);
  CHECK(json.ok());
  return {.name = "f", .description = "", .parameters = *json};
}

// Keys k0, k1, ..., without types.
std::string Keys(int count) {
  std::string keys;
  for (int i = 0; i < count; ++i) keys += StrCat(i == 0 ? "" : ",", "\"k", i, "\":{}");
  return keys;
}

TEST(ArgumentTypes, AreThoseOfTheSchemaInEveryForm) {
  std::vector<Tool> tools = {
      ToolWith(R"({"properties": {"a": {"type": "string"}, "b": {"type": "integer"},
                   "c": {"enum": ["x", "y"]}, "d": {"type": ["string", "null"]}}})"),
      ToolWith(
          R"({"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {}}}]})"),
      ToolWith(R"({"anyOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]},
                             {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                              "required": ["b"]}]})"),
      ToolWith(
          R"({"properties": {"a": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"type": "string"}}})"),
      ToolWith(R"({"patternProperties": {"^s_": {"type": "string"}}})")};
  const std::vector<Tool> unprepared = tools;
  FindTypes(tools);
  const std::vector<std::vector<std::string>> expected = {{"string", "integer", "string", ""},
                                                          {"string", "", "", ""},
                                                          {"", "string", "", ""},
                                                          {"string", "", "", ""},
                                                          {"string", "string", "string", "string"}};
  const std::vector<std::string> keys = {"a", "b", "c", "d"};
  for (std::size_t i = 0; i + 1 < tools.size(); ++i) {
    for (std::size_t k = 0; k < keys.size(); ++k) {
      EXPECT_EQ(TypeOfParameter(tools[i], keys[k]), expected[i][k]) << i << ' ' << keys[k];
      EXPECT_EQ(TypeOfParameter(unprepared[i], keys[k]), expected[i][k]) << i << ' ' << keys[k];
    }
  }
  EXPECT_EQ(TypeOfParameter(tools.back(), "s_x"), "string");
}

// Each key needs the pattern's automaton, and each tool all keys.
TEST(ArgumentTypes, AllToolsOfARequestShareOneBudget) {
  const Tool dear = ToolWith(StrCat(
      R"({"patternProperties": {"(a|b)*a(a|b){12}": {}}, "properties": {)", Keys(320), "}}"));
  std::vector<Tool> tools(100, dear);
  grammar::Budget time(1, 20, 1);  // of this thread's processor; it took minutes for one tool
  FindTypes(tools);
  for (const Tool& tool : tools) {
    for (int i = 0; i < 320; ++i) (void)TypeOfParameter(tool, StrCat("k", i));
  }
  EXPECT_FALSE(time.late());
}

TEST(ArgumentTypes, TheTextOfAGrammarIsBoundedWhileItIsWritten) {
  const OutputFormat format;
  RuleList rules(format, false);
  const ValueMarks marks{.open = "<v>", .next = "</v>", .close = "</a>"};
  const TaggedArguments tagged{.open = "<a>", .empty = "<n>", .text = marks, .other = marks};
  const Tool tool = ToolWith(StrCat(R"({"allOf": [{"properties": {)", Keys(440), "}}]}"));
  Status last;
  for (int i = 0; i < 40 && last.ok(); ++i) last = WriteTagged(tagged, tool, i, rules).status();
  EXPECT_EQ(last.code(), StatusCode::kInvalidArgument) << last.message();
  EXPECT_LT(rules.Take("tools").text.size(), 2 * RuleList::kBytesMax);  // 500 MB without a bound
}

}  // namespace
}  // namespace thermocline::chat
