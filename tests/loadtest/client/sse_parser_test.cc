#include "loadtest/client/sse_parser.h"

#include <gtest/gtest.h>

namespace thermocline::loadtest {
namespace {

using Events = std::vector<std::string>;

// The events of `text`, which arrives in pieces cut at `cuts`.
Events Parse(const std::string& text, std::vector<std::size_t> cuts = {}) {
  Events events;
  SseParser parser([&](const std::string& data) { events.push_back(data); });
  std::size_t from = 0;
  cuts.push_back(text.size());
  for (const std::size_t cut : cuts) {
    EXPECT_TRUE(parser.Feed(std::string_view(text).substr(from, cut - from)).ok());
    from = cut;
  }
  parser.End();
  return events;
}

struct Case {
  const char* text;
  Events events;
};

std::vector<Case> Cases() {
  return {
      {"data: a\n\ndata: b\n\n", {"a", "b"}},
      {"data: a\r\n\r\ndata: b\r\n\r\n", {"a", "b"}},
      {"data: a\r\rdata: b\r\r", {"a", "b"}},
      {"data:a\n\n", {"a"}},
      {"data:  a\n\n", {" a"}},
      {"data: a\ndata: b\n\n", {"a\nb"}},
      {"data\n\n", {""}},
      {": keep-alive\n\ndata: a\n\n: keep-alive\n\n", {"a"}},
      {"event: message\nid: 7\nretry: 10\ndata: a\n\n", {"a"}},
      {"\xEF\xBB\xBF"
       "data: a\n\n",
       {"a"}},
      {"\n\n\ndata: a\n\n\n\n", {"a"}},
      {"data: {\"x\": \"\xC3\xA9\"}\n\n", {"{\"x\": \"\xC3\xA9\"}"}},
      {"data: a\n\ndata: [DONE]", {"a", "[DONE]"}},  // some servers omit the last empty line
      {"data: a\n\ndatabase: b\n\n", {"a"}},
      {"", {}},
  };
}

TEST(SseParserTest, CutAtEveryByteTheEventsAreTheSame) {
  for (const Case& c : Cases()) {
    const std::string text = c.text;
    EXPECT_EQ(Parse(text), c.events) << text;
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      EXPECT_EQ(Parse(text, {cut}), c.events) << text << " at " << cut;
      for (std::size_t second = cut; second <= text.size(); ++second)
        EXPECT_EQ(Parse(text, {cut, second}), c.events) << text << " at " << cut << ", " << second;
    }
  }
}

TEST(SseParserTest, AnEndlessLineIsRefused) {
  SseParser parser([](const std::string&) {}, 1000);
  Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) status = parser.Feed("data: aaaaaaaaaaaaaaaaaaaaaa");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
}

TEST(SseParserTest, AnEventOfEndlessLinesIsRefused) {
  SseParser parser([](const std::string&) {}, 1000);
  Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) status = parser.Feed("data: aaaaaaaaaaaa\n");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace thermocline::loadtest
