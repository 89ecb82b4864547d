// Reading the server's metrics, its memory and its HTTP.
#include <gtest/gtest.h>

#include "loadtest/client/http_parser.h"
#include "loadtest/measure/memory_watch.h"
#include "loadtest/measure/server_metrics.h"
#include "loadtest/measure/timeline.h"

namespace thermocline::loadtest {
namespace {

TEST(ServerMetricsTest, DeltasAndRatios) {
  const auto before = ParseMetrics(
      "# HELP x\nvllm:prefix_cache_queries_total{engine=\"0\"} 100\n"
      "vllm:prefix_cache_hits_total 10\n"
      "thermocline_energy_joules_total{rail=\"cpu\"} 5\n");
  const auto after = ParseMetrics(
      "vllm:prefix_cache_queries_total{engine=\"0\"} 200 1700000000\r\n"
      "vllm:prefix_cache_queries_total{engine=\"1\"} 100\n"
      "vllm:prefix_cache_hits_total 60\nvllm:generation_tokens_total 20\n"
      "thermocline_energy_joules_total{rail=\"cpu\"} 15\nthermocline_num_requests_running 2\n"
      "thermocline_num_requests_waiting 1\n");
  const Json delta = MetricsDelta(before, after);
  EXPECT_EQ(delta.Find("prefix_cache_queries_total")->as_double(), 200);
  EXPECT_EQ(delta.Find("cache_hit_ratio")->as_double(), 0.25);
  EXPECT_EQ(delta.Find("joules")->Find("cpu")->as_double(), 10);
  EXPECT_EQ(delta.Find("joules_per_token")->Find("cpu")->as_double(), 0.5);
  EXPECT_EQ(RequestsLeft(after), 3);
  EXPECT_FALSE(RequestsLeft(before).has_value());
}

TEST(ServerMetricsTest, APageOfAnythingIsHarmless) {
  EXPECT_TRUE(MetricsDelta({}, ParseMetrics("<html>\n{\n}\nx\n{} 1\na_num_requests_running{ 3\n"
                                            "a_prompt_tokens_total NaN\na_prompt_tokens_total\n"))
                  .is_null());
}

TEST(MemoryWatchTest, ASlopeIsThatOfTheLine) {
  MemoryWatch watch;
  for (int i = 0; i < 100; ++i)
    watch.Add(i,
              {.rss_bytes = 1e6 + (i < 20 ? 1e6 * i : 20e6) + 100.0 * i, .swap_bytes = 50.0 * i});
  ASSERT_TRUE(watch.slope_bytes_per_hour().has_value());
  EXPECT_NEAR(*watch.slope_bytes_per_hour(), 150 * 3600, 1);
}

TEST(MemoryWatchTest, ReadingsAreBounded) {
  MemoryWatch watch;
  for (int i = 0; i < 100000; ++i) watch.Add(i, {.rss_bytes = 7, .swap_bytes = 0});
  EXPECT_LE(watch.samples().size(), 4000u);
  EXPECT_NEAR(*watch.slope_bytes_per_hour(), 0, 1e-6);
  EXPECT_GT(watch.samples().back().time, 90000);
}

TEST(MemoryWatchTest, AStatusFileIsRead) {
  const auto memory = ParseProcessStatus("Name:\tx\nVmRSS:\t    1024 kB\nVmSwap:\t   2 kB\n");
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->rss_bytes, 1 << 20);
  EXPECT_EQ(memory->swap_bytes, 2048);
  EXPECT_FALSE(ParseProcessStatus("Name:\tkernel thread\n").has_value());
}

// The body of `response`, which arrives in two pieces cut at `cut`.
Result<std::string> Body(const std::string& response, std::size_t cut) {
  HttpParser parser;
  RETURN_IF_ERROR(parser.Feed(std::string_view(response).substr(0, cut)));
  RETURN_IF_ERROR(parser.Feed(std::string_view(response).substr(cut)));
  if (!parser.done()) RETURN_IF_ERROR(parser.End());
  return parser.TakeBody();
}

TEST(HttpParserTest, CutAtEveryByteTheBodyIsTheSame) {
  for (const char* text : {"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
                           "chunked\r\n\r\n3\r\nowl\r\na;x=y\r\n0123456789\r\n0\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nowl0123456789",
                           "HTTP/1.0 200 OK\r\n\r\nowl0123456789",
                           "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: "
                           "13\r\n\r\nowl0123456789"}) {
    const std::string response = text;
    for (std::size_t cut = 0; cut <= response.size(); ++cut) {
      const auto body = Body(response, cut);
      ASSERT_TRUE(body.ok()) << text << " at " << cut << ": " << body.status().message();
      EXPECT_EQ(*body, "owl0123456789") << text << " at " << cut;
    }
  }
}

TEST(HttpParserTest, WhatIsNoHttpIsRefused) {
  for (const char* text :
       {"SSH-2.0-OpenSSH\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nowl",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nowl\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nowl"})
    EXPECT_FALSE(Body(text, 0).ok()) << text;
  // A claimed length reserves no memory; headers and chunk sizes have limits.
  EXPECT_FALSE(Body("HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\nowl", 0).ok());
  EXPECT_FALSE(Body("HTTP/1.1 200 OK\r\nX: " + std::string(1 << 20, 'x'), 0).ok());
  EXPECT_FALSE(
      Body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;" + std::string(1 << 20, 'x'), 0)
          .ok());
}

TEST(TimelineTest, BinsAreBoundedAndKeepTheirSums) {
  Timeline timeline;
  for (int i = 0; i < 10000; ++i) {
    Answer answer;
    answer.t_sent = i;
    answer.t_last = i + 2;
    answer.t_chunks = {i + 0.5, i + 1.5};
    answer.chunks = 2;
    answer.output_tokens = 6;
    answer.outcome = Outcome::kOk;
    timeline.Add(answer);
  }
  double tokens = 0, ok = 0;
  for (const Timeline::Bin& bin : timeline.bins()) {
    tokens += bin.tokens;
    ok += bin.ok;
  }
  EXPECT_LE(timeline.bins().size(), 600u);
  EXPECT_NEAR(tokens, 60000, 1e-6);
  EXPECT_EQ(ok, 10000);
}

}  // namespace
}  // namespace thermocline::loadtest
