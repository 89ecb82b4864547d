// JSON schemas: texts that their grammars accept and reject, and rejected schemas.
#include "engine/grammar/json_schema.h"

#include <gtest/gtest.h>

#include "engine/grammar/schema_merge.h"
#include "tests/engine/grammar/small_vocabulary.h"

namespace thermocline::grammar {
namespace {

const SmallVocabulary& SchemaVocabulary() {
  static const SmallVocabulary vocabulary({"\"a", "\":", "12"});
  return vocabulary;
}

using Texts = std::vector<std::string>;

void Expect(const std::string& schema, const Texts& takes, const Texts& leaves) {
  const auto compiled = SchemaVocabulary().Schema(schema);
  ASSERT_TRUE(compiled.ok()) << schema << ": " << compiled.status().message();
  for (const std::string& text : takes) {
    EXPECT_TRUE(base::ParseJson(text).ok()) << "no JSON: " << text;
    EXPECT_TRUE(Takes(*compiled, text)) << schema << ": " << text;
  }
  for (const std::string& text : leaves)
    EXPECT_FALSE(Takes(*compiled, text)) << schema << ": " << text;
}

void ExpectRefused(const std::string& schema, const std::string& words,
                   StatusCode code = StatusCode::kUnimplemented) {
  const auto compiled = SchemaVocabulary().Schema(schema);
  ASSERT_FALSE(compiled.ok()) << schema;
  EXPECT_EQ(compiled.status().code(), code) << compiled.status().message();
  EXPECT_NE(compiled.status().message().find(words), std::string::npos)
      << compiled.status().message();
}

TEST(JsonSchema, AnyValue) {
  for (const char* schema : {"true", "{}", R"({"description":"x"})"}) {
    Expect(schema,
           {"null", "true", "-1.5e+10", "0", "\"\"", "\"a\\u20ac\\ud83d\\ude00\\n\"", "[]", "{}",
            "[1, [\"a\", {}]]", R"({"a": {"b": [null]}})", "\"\xF0\x9F\x98\x80\""},
           {"", "nul", "01", "1.", ".5", "+1", "1e", "\"\n\"", "\"\\x\"", "\"\\ud83d\"",
            "\"\\ude00\"", "[1,]", "{\"a\"}", "{a:1}", "\"\xFF\"", " 1", "1 ", "[1,   2]"});
  }
}

TEST(JsonSchema, WhiteSpaceIsBounded) {
  Expect(R"({"type":"array","items":{"type":"integer"}})",
         {"[1,2]", "[ 1, 2 ]", "[\n  1,\n  2\n]", "[\n\n\t\t1]"}, {"[  1]", "[1 ,2]", "[\n\n\n1]"});
}

TEST(JsonSchema, Objects) {
  Expect(
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"},"c":{}},"required":["b"]})",
      {R"({"b": null})", R"({"a": 1, "b": null})", R"({"a":1,"b":null,"c":{"x":1}})",
       R"({"b":null,"c":[]})"},
      {"{}", R"({"a":1})", R"({"b":null,"a":1})", R"({"b":null,"d":1})", R"({"b":1})",
       R"({"a":1 "b":null})"});
  Expect(
      R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
      {"{}", R"({"a":1})", R"({"a":1,"b":"x"})", R"({"":"x","ab":"y"})"},
      {R"({"a":"x"})", R"({"b":1})", R"({"\u0061":"x"})"});
  Expect(
      R"({"type":"object","additionalProperties":{"type":"boolean"},"minProperties":1,"maxProperties":2})",
      {R"({"a":true})", R"({"a":true,"b":false})"}, {"{}", R"({"a":true,"b":false,"c":true})"});
  Expect(
      R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"minProperties":2,"maxProperties":2,"additionalProperties":false,"required":["a","c"]})",
      {R"({"a":1,"c":1})"}, {R"({"a":1})", R"({"a":1,"b":1,"c":1})"});
  Expect(R"({"type":"object","properties":{"a\"b":{"type":"null"}},"required":["a\"b"]})",
         {R"({"a\"b":null})"}, {"{}"});
  Expect(
      R"({"type":"object","patternProperties":{"^x_":{"type":"integer"},"^s":{"type":"string"}},"additionalProperties":false})",
      {"{}", R"({"x_1":1,"s":"a"})"}, {R"({"x_1":"a"})", R"({"y":1})"});
  Expect(
      R"({"type":"object","properties":{"x_a":{"minimum":5}},"patternProperties":{"^x_":{"type":"integer"}}})",
      {R"({"x_a":7,"x_b":1})"}, {R"({"x_a":1})", R"({"x_a":5.5})"});
  Expect(
      R"({"type":"object","propertyNames":{"pattern":"^[a-z]{2}$"},"additionalProperties":{"type":"null"}})",
      {"{}", R"({"ab":null})"}, {R"({"a":null})"});
  Expect(R"({"required":["z"],"properties":{"a":{"const":1}}})",
         {R"({"z":[1]})", R"({"a":1,"z":2})"}, {"{}", R"({"a":2,"z":1})"});
}

TEST(JsonSchema, Arrays) {
  Expect(R"({"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":3})",
         {"[true]", "[true, false,true]"}, {"[]", "[true,true,true,true]", "[1]"});
  Expect(
      R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"}})",
      {"[]", "[1]", "[1,\"a\"]", "[1,\"a\",null,null]"}, {"[\"a\"]", "[1,\"a\",1]"});
  Expect(R"({"type":"array","items":[{"type":"integer"}],"additionalItems":false})", {"[]", "[1]"},
         {"[1,1]"});
  Expect(R"({"type":"array","minItems":2})", {"[1,2]", "[[],{},3]"}, {"[1]"});
  Expect(R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"});
  // Some programs write "any number" like this.
  Expect(R"({"type":"array","minItems":1,"maxItems":9223372036854775807})", {"[1,2]"}, {"[]"});
}

TEST(JsonSchema, Strings) {
  Expect(R"({"type":"string","minLength":2,"maxLength":3})",
         {"\"ab\"", "\"a\xE2\x82\xAC\\n\"", "\"\xF0\x9F\x98\x80\xF0\x9F\x98\x80\""},
         {"\"a\"", "\"abcd\"", "\"\""});
  Expect(R"({"type":"string","pattern":"b+"})", {"\"b\"", "\"abba\"", "\"\\nb\""},
         {"\"a\"", "\"\""});
  Expect(R"({"type":"string","pattern":"^[a-z\"]*$","maxLength":3})", {"\"\"", "\"a\\\"\""},
         {"\"abcd\"", "\"A\""});
  Expect(R"({"type":"string","pattern":"^a|z$"})", {"\"abc\"", "\"xyz\""}, {"\"bab\""});
  Expect(R"({"type":"string","maxLength":1000})",
         {"\"" + std::string(1000, 'x') + "\"", "\"\"", "\"" + std::string(255, 'y') + "\"",
          "\"" + std::string(256, 'y') + "\""},
         {"\"" + std::string(1001, 'x') + "\""});
  for (const auto& [format, good, bad] :
       {std::tuple("date", "2024-02-28", "2024-13-01"),
        {"time", "12:34:56Z", "25:00:00Z"},
        {"date-time", "2024-02-28T12:00:00.5+01:00", "2024-02-28 12:00:00"},
        {"date-time", "2016-12-31t23:59:60z", "2016-12-31T12:00:60Z"},
        {"time", "23:59:60.5+00:00", "23:59:60+01:00"},
        {"email", "user@[192.168.0.1]", "user@[192.168.0.256]"},
        {"email", R"(\"a b\"@example.com)", "a b@example.com"},
        {"uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"},
        {"ipv4", "192.168.0.255", "256.1.1.1"},
        {"ipv6", "fe80::1", "1::2::3"},
        {"email", "a.b@example.org", "a@b@c"},
        {"hostname", "a-b.example", "-a"},
        {"uri", "https://example.org/a?b=c#d", "no uri"},
        {"duration", "P1Y2M3DT4H", "P"}})
    Expect(StrCat(R"({"type":"string","format":")", format, "\"}"), {StrCat("\"", good, "\"")},
           {StrCat("\"", bad, "\"")});
  // A name has at most 253 characters in all.
  const std::string label(63, 'a'), shorter(37, 'b');
  std::string longest = label;
  for (int i = 0; i < 5; ++i) longest += "." + shorter;
  ASSERT_EQ(longest.size(), 253U);
  Expect(R"({"type":"string","format":"hostname"})", {StrCat("\"", longest, "\"")},
         {StrCat("\"", longest, "b\""),
          StrCat("\"", label, ".", label, ".", label, ".", label, "\"")});
}

TEST(JsonSchema, Numbers) {
  Expect(R"({"type":"integer"})", {"0", "-7", "123456789012345"},
         {"1.5", "01", "-", "1e3", std::string(41, '1')});
  Expect(R"({"type":"integer","minimum":-3,"exclusiveMaximum":120})",
         {"-3", "-1", "0", "7", "99", "119"}, {"-4", "120", "200", "-10"});
  Expect(R"({"type":"integer","minimum":17,"maximum":1042})",
         {"17", "99", "100", "999", "1000", "1042"}, {"16", "1043", "2000", "9"});
  Expect(R"({"type":"integer","multipleOf":7,"minimum":0,"maximum":1000})", {"0", "7", "994"},
         {"1", "1001", "8"});
  Expect(R"({"type":"number","minimum":0,"maximum":1})", {"0", "1", "0.5", "1.0", "0.999"},
         {"1.1", "1.01", "2", "1e-5", "-0.1"});
  Expect(R"({"type":"number","exclusiveMinimum":0})", {"1e-07", "1e+20", "0.5", "3"},
         {"0", "-1", "0e5", "1e-999", "0.0"});
  Expect(R"({"type":"number","exclusiveMaximum":0})", {"-1e-07", "-1E+20", "-0.5"},
         {"0", "1", "-0", "-0e5"});
  Expect(R"({"const":123456789012345678901234567890})", {"123456789012345678901234567890"},
         {"1.2345678901234568e+29"});
  Expect(R"({"enum":[-9223372036854775809,0.1000000000000000055511151231257827]})",
         {"-9223372036854775809", "0.1000000000000000055511151231257827"},
         {"-9223372036854775808.0", "0.1"});
  Expect(R"({"type":"integer","minimum":123456789012345678901234567890})",
         {"123456789012345678901234567890"}, {"123456789012345678901234567889"});
  Expect(R"({"type":"number","exclusiveMinimum":0.25,"exclusiveMaximum":10.5})",
         {"0.26", "0.251", "10.49", "7", "10"}, {"0.25", "0.250", "10.5", "11", "0"});
  Expect(R"({"type":"number","minimum":-2.5,"maximum":-0.5})", {"-2.5", "-1", "-0.5", "-0.75"},
         {"-2.51", "-0.4", "0", "1"});
  Expect(R"({"type":"number","minimum":1.5,"maximum":1.75})", {"1.5", "1.75", "1.6", "1.70"},
         {"1.49", "1.76", "1", "2"});
  Expect(R"({"type":"number"})", {"1.5", "-0.1", "1e5", "2E-10"}, {"1.", "1e", "1e1234"});
  Expect(R"({"minimum":1,"exclusiveMinimum":true,"type":"integer","maximum":2})", {"2"}, {"1"});
}

TEST(JsonSchema, Choices) {
  Expect(R"({"enum":["a",1,null,[1,2],{"k":true}]})",
         {"\"a\"", "1", "null", "[1,2]", "{\"k\":true}"}, {"2", "\"b\""});
  Expect(R"({"const":"x\n"})", {"\"x\\n\""}, {"\"x\""});
  Expect(R"({"type":["string","null"]})", {"\"a\"", "null"}, {"1"});
  Expect(R"({"anyOf":[{"type":"integer"},{"type":"object","properties":{"a":{}}}]})",
         {"1", "{\"a\":1}"}, {"\"a\""});
  Expect(
      R"({"type":"object","properties":{"k":{"enum":["a","b"]}},"required":["k"],"anyOf":[{"required":["x"],"properties":{"x":{"type":"integer"}}},{"required":["y"],"properties":{"y":{"type":"null"}}}]})",
      {R"({"k":"a","x":1})", R"({"k":"b","y":null})"}, {R"({"k":"a"})", R"({"k":"c","x":1})"});
  Expect(R"({"oneOf":[{"type":"string"},{"type":"integer"}]})", {"\"a\"", "1"}, {"null"});
  Expect(
      R"({"oneOf":[{"type":"object","properties":{"t":{"const":"a"}},"required":["t"]},{"type":"object","properties":{"t":{"const":"b"},"n":{"type":"integer"}},"required":["t"]}]})",
      {R"({"t":"a"})", R"({"t":"b","n":1})"}, {R"({"t":"c"})"});
  Expect(
      R"({"allOf":[{"type":"object","properties":{"a":{"type":"number"}},"required":["a"]},{"properties":{"a":{"maximum":5},"b":{"type":"string"}}}]})",
      {R"({"a":1.5})", R"({"a":5,"b":"x"})"}, {R"({"a":6})", "{}", R"({"a":1,"c":1})"});
  Expect(R"({"type":"integer","enum":[1,"a",2.5]})", {"1"}, {"\"a\"", "2.5"});
}

TEST(JsonSchema, References) {
  Expect(
      R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}}})",
      {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
      {R"({"v":1})", R"({"v":1,"next":2})"});
  Expect(R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"});
  Expect(R"({"definitions":{"a/b":{"type":"null"}},"$ref":"#/definitions/a~1b"})", {"null"}, {"1"});
  Expect(
      R"({"properties":{"a":{"$ref":"#/$defs/p","maximum":3}},"required":["a"],"$defs":{"p":{"type":"integer","minimum":1}}})",
      {R"({"a":2})"}, {R"({"a":0})", R"({"a":4})"});
}

TEST(JsonSchema, RefusedByName) {
  for (const char* keyword : {"not", "if", "contains", "dependentRequired", "unevaluatedItems"})
    ExpectRefused(StrCat("{\"", keyword, "\":{}}"), StrCat("'", keyword, "'"));
  ExpectRefused(R"({"type":"array","uniqueItems":true})", "'uniqueItems'");
  ExpectRefused(R"({"type":"array","minItems":9223372036854775807})",
                "minItems and maxItems above");
  ExpectRefused(R"({"type":"number","multipleOf":0.01})", "'multipleOf'");
  ExpectRefused(R"({"type":"string","format":"iri"})", "'iri'");
  ExpectRefused(R"({"type":"string","pattern":"\\p{L}"})", "\\p");
  ExpectRefused(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "'oneOf'");
  ExpectRefused(R"({"type":"object","patternProperties":{"a":{},"b":{}}})", "overlap");
  ExpectRefused(R"({"type":"object","minProperties":3})", "'minProperties'");
  const auto wrong = StatusCode::kInvalidArgument;
  ExpectRefused(R"x({"type":"string","pattern":"(?=a)"})x", "(?=", wrong);
  ExpectRefused(R"({"type":"strin"})", "'type'", wrong);
  ExpectRefused(R"({"$ref":"#/$defs/x"})", "refers to nothing", wrong);
  ExpectRefused(R"({"$ref":"http://example.org/x"})", "refers to nothing", wrong);
  ExpectRefused(R"({"$ref":"#"})", "refers to itself", wrong);
  ExpectRefused(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "no text",
                wrong);
  ExpectRefused(R"({"type":"integer","minimum":3,"maximum":2})", "no number", wrong);
  ExpectRefused(R"({"type":"string","enum":[1]})", "'enum'", wrong);
  ExpectRefused(R"({"type":"object","required":["a"],"additionalProperties":false})",
                "requires 'a'", wrong);
  ExpectRefused(R"({"allOf":[{"type":"string"},{"type":"null"}]})", "no text", wrong);
  ExpectRefused(R"({"type":"string","minLength":3,"maxLength":2})", "minLength", wrong);
}

// Alternatives that multiply are rejected instead of causing endless work.
TEST(JsonSchema, ExplosionsAreRefused) {
  std::string nested = R"({"type":"integer"})";
  for (int i = 0; i < 12; ++i)
    nested = StrCat(R"({"anyOf":[)", nested, R"(,{"type":"object","properties":{"a)", i,
                    "\":", nested, "}}]}");
  const auto compiled = SchemaVocabulary().Schema(nested, 20'000);
  if (compiled.ok()) {
    EXPECT_LE((*compiled)->automaton().num_states(), 20'000);
  }
  EXPECT_FALSE(
      SchemaVocabulary().Schema(R"({"type":"string","pattern":"(a|b)*a(a|b){18}"})", 20'000).ok());
  EXPECT_FALSE(
      SchemaVocabulary()
          .Schema(
              R"({"type":"array","items":{"type":"array","items":{"type":"string","maxLength":200},"maxItems":9000},"maxItems":9000})",
              5'000)
          .ok());
}

TEST(JsonSchema, PairsOfAlternativesAreBoundedByTime) {
  std::string alternatives = R"({"const":-1})";
  for (int i = 0; i < 16'000; ++i) alternatives += StrCat(R"(,{"const":)", i, "}");
  const auto schema = base::ParseJson(StrCat(R"({"oneOf":[)", alternatives, "]}"));
  ASSERT_TRUE(schema.ok());
  Budget budget(1'000'000, 0.5, std::size_t{1} << 30);
  EXPECT_FALSE(GrammarOfSchema(*schema, budget).ok());
  EXPECT_TRUE(budget.late());
}

TEST(JsonSchema, NamesAreFoundBySearchNotByTryingAll) {
  std::string names = R"("a")";
  for (int i = 0; i < 100'000; ++i) names += StrCat(R"(,"n)", i, "\"");
  const auto schema = base::ParseJson(StrCat(R"({"type":"object","required":[)", names, "]}"));
  ASSERT_TRUE(schema.ok());
  Budget budget(1'000'000, 600, std::size_t{1} << 30);
  const auto merged = MergeSchema(*schema, *schema, budget);  // 5 * 10^9 comparisons otherwise
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->required.size(), 100'001U);
}

TEST(JsonSchema, AnExponentOfAnyLengthIsANumber) {
  for (const char* bound : {"-1e-99999999999999999999", "1e99999999999999999999", "-1E-400"}) {
    const auto grammar =
        SchemaVocabulary().Schema(StrCat(R"({"type":"number","minimum":)", bound, "}"), 200'000);
    EXPECT_TRUE(grammar.ok() || !grammar.status().message().empty()) << bound;
  }
}

TEST(JsonSchema, WhatTakesTooMuchMemoryIsRefused) {
  const auto compiled = SmallVocabulary({}).Schema(
      R"({"type":"string","pattern":"^((x?y?){30}){30}((x?y?){30}){30}((x?y?){30}){30}z$"})",
      1 << 20);
  EXPECT_EQ(compiled.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(compiled.status().message().find("more than 64.00 MiB") != std::string::npos)
      << compiled.status().message();
}

}  // namespace
}  // namespace thermocline::grammar
