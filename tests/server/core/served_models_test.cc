#include "server/core/served_models.h"

#include <gtest/gtest.h>

namespace thermocline::server {
namespace {

TEST(ModelOf, IsTheTopMemberWhereverItStands) {
  EXPECT_EQ(ModelOf(R"({"model": "a", "messages": []})", false), "a");
  EXPECT_EQ(
      ModelOf(R"({"messages": [{"model": "x", "content": "\"model\": \"y\""}], "model" :"b"})",
              false),
      "b");
  EXPECT_EQ(ModelOf(R"({"name": "c", "options": {"model": "x"}})", true), "c");
  EXPECT_EQ(ModelOf(R"({"name": "c", "model": "d"})", true), "d");
  EXPECT_EQ(ModelOf(R"({"model": "caf\u00e9 \"1\""})", false), "caf\u00e9 \"1\"");
  EXPECT_EQ(ModelOf(R"({"text": "model", "x": "\\", "model": "e"})", false), "e");
}

TEST(ModelOf, TakesANameOnOllamasRoutesAlone) {
  constexpr std::string_view kBody = R"({"name": "c", "messages": []})";
  EXPECT_EQ(RequestedModel(kBody, "/api/show"), "c");
  EXPECT_EQ(RequestedModel(kBody, "/v1/chat/completions"), "");
}

TEST(ModelOf, IsTheLastOfTwoAsRoutesReadIt) {
  EXPECT_EQ(ModelOf(R"({"model": "a", "model": "b", "name": "c"})", true), "b");
}

TEST(ModelOf, IsFoundByAKeyThatIsWrittenWithEscapes) {
  EXPECT_EQ(ModelOf(R"({"mo\u0064el": "a"})", false), "a");
  EXPECT_EQ(ModelOf(R"({"\ud800": 1, "model": "a"})", false), "a");
}

TEST(ModelOf, IsEmptyWithoutOneAndForWhatIsNoJson) {
  for (const char* text :
       {"", "{", "{\"model\"", "{\"model\":", "{\"model\": \"a", "{\"model\": 5}",
        "[\"model\", \"a\"]", "\"model\": \"a\"", "{\"a\": \"\\", "}{]["})
    EXPECT_EQ(ModelOf(text, true), "") << text;
}

TEST(SecondsOf, ReadsNumbersAndDurations) {
  EXPECT_EQ(SecondsOf("300"), 300);
  EXPECT_EQ(SecondsOf("5m"), 300);
  EXPECT_EQ(SecondsOf("1h30m"), 5400);
  EXPECT_EQ(SecondsOf("250ms"), 0.25);
  EXPECT_EQ(SecondsOf("-1"), -1);
  for (const char* text : {"", "-", "m", "5x", "5m3", "1e3", "nan", "soon", "- 5"})
    EXPECT_FALSE(SecondsOf(text).has_value()) << text;
}

}  // namespace
}  // namespace thermocline::server
