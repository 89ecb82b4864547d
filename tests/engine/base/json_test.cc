#include "engine/base/json.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/json_limits.h"

namespace thermocline::base {
namespace {

TEST(Json, RoundTripsEveryKind) {
  const std::string text =
      R"({"a":[1,-2,3.5,true,false,null],"b":{"c":"x\n\"é😀"},"big":9007199254740993})";
  const auto json = ParseJson(text);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->Dump(), text);
  EXPECT_EQ(json->Find("big")->as_int(), 9007199254740993);
}

TEST(Json, FindSkipsNullsAndTakesTheLastDuplicate) {
  const auto json = ParseJson(R"({"a":null,"b":1,"b":2})");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->Find("a"), nullptr);
  EXPECT_NE(json->FindRaw("a"), nullptr);
  EXPECT_EQ(json->Find("b")->as_int(), 2);
}

TEST(Json, ErrorsNameTheByte) {
  for (const char* bad : {"", "{", "[1,]", "{\"a\":}", "nul", "\"\x80\"", "\"\\ud800\"", "1e999",
                          "[1] 2", "{'a':1}"}) {
    const auto json = ParseJson(bad);
    EXPECT_FALSE(json.ok()) << bad;
    EXPECT_NE(json.status().message().find("invalid JSON"), std::string::npos)
        << json.status().message();
  }
}

TEST(Json, WhatFollowsANulByteIsNotIgnored) {
  const std::string object = R"({"a":1})";
  for (const std::string& tail : {std::string(1, '\0'), std::string("\0garbage", 8)}) {
    const auto json = ParseJson(object + tail);
    ASSERT_FALSE(json.ok());
    EXPECT_EQ(json.status().message(), "invalid JSON at byte 8: a NUL byte");
  }
  EXPECT_FALSE(ParseJson(std::string(1, '\0') + object).ok());
  EXPECT_TRUE(ParseJson(R"({"a":"\u0000"})").ok());
}

TEST(Json, WholeNumbersOf64BitsStayExact) {
  const std::string text =
      "[-9223372036854775808,9223372036854775807,9223372036854775808,18446744073709551615]";
  const auto json = ParseJson(text);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->Dump(), text);
  const Json& least = json->as_array()[2];
  EXPECT_FALSE(least.is_int());
  EXPECT_TRUE(least.is_number());
  EXPECT_EQ(least.as_double(), 9223372036854775808.0);
  EXPECT_EQ(least.type_name(), "integer");
  EXPECT_EQ(json->as_array()[3].as_big_int(), UINT64_MAX);
  const auto beyond = ParseJson("18446744073709551616");
  ASSERT_TRUE(beyond.ok());
  EXPECT_FALSE(beyond->is_big_int());
  EXPECT_EQ(beyond->as_double(), 18446744073709551616.0);
}

TEST(Json, NumbersThatNoDoubleHoldsStayAsTheyAreWritten) {
  for (const std::string text :
       {"123456789012345678901234567890", "-9223372036854775809",
        "0.1000000000000000055511151231257827", "1.00000000000000000001e+5", "1e-400"}) {
    const auto json = ParseJson(text);
    ASSERT_TRUE(json.ok());
    EXPECT_TRUE(json->is_number() && json->is_decimal()) << text;
    EXPECT_EQ(json->Dump(), text);
  }
  EXPECT_EQ(ParseJson("123456789012345678901234567890")->as_double(),
            123456789012345678901234567890.0);
  EXPECT_EQ(ParseJson("-9223372036854775809")->type_name(), "integer");
  // The same number in another notation is a double.
  for (const std::string text :
       {"1.50", "1e5", "100000000000000000000", "1E+20", "0.1", "-0.0e7", "1e-999999999"})
    EXPECT_FALSE(ParseJson(text)->is_decimal()) << text;
}

TEST(Json, DepthIsBounded) {
  const std::string deep(100000, '[');
  EXPECT_FALSE(ParseJson(deep).ok());
  EXPECT_TRUE(ParseJson(std::string(64, '[') + std::string(64, ']')).ok());
  EXPECT_FALSE(ParseJson(std::string(65, '[') + std::string(65, ']')).ok());
}

TEST(Json, ValuesAreBounded) {
  const std::string text = "[[],[],{\"a\":1}]";  // five values
  EXPECT_TRUE(ParseJsonOf(text, 5).ok());
  EXPECT_EQ(ParseJsonOf(text, 4).status().code(), StatusCode::kResourceExhausted);
}

TEST(Json, DumpNeverWritesWhatParseRefuses) {
  const Json json =
      Json::Array{"\xC3(", std::string("\0\x01", 2), std::nan(""), HUGE_VAL, 1e300, 0.1, 1.0};
  const auto back = ParseJson(json.Dump());
  ASSERT_TRUE(back.ok()) << json.Dump();
  EXPECT_EQ(back->as_array()[0].as_string(), "\uFFFD(");
  EXPECT_TRUE(back->as_array()[2].is_null());
  EXPECT_EQ(back->as_array()[5].as_double(), 0.1);
}

}  // namespace
}  // namespace thermocline::base
