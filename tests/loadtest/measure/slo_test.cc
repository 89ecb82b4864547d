#include "loadtest/measure/slo.h"

#include <gtest/gtest.h>

namespace thermocline::loadtest {
namespace {

TEST(SloTest, TermsAreRead) {
  const auto slo = ParseSlo("ttft:p95<1s,itl:p99<=100ms,tpot:mean<50us,errors<1%,goodput>2.5");
  ASSERT_TRUE(slo.ok()) << slo.status().message();
  ASSERT_EQ(slo->size(), 5u);
  EXPECT_EQ((*slo)[0].measure, kTtft);
  EXPECT_EQ((*slo)[0].statistic, "p95");
  EXPECT_EQ((*slo)[0].limit, 1);
  EXPECT_EQ((*slo)[1].measure, kItl);
  EXPECT_DOUBLE_EQ((*slo)[1].limit, 0.1);
  EXPECT_DOUBLE_EQ((*slo)[2].limit, 50e-6);
  EXPECT_EQ((*slo)[3].quantity, SloTerm::Quantity::kErrors);
  EXPECT_DOUBLE_EQ((*slo)[3].limit, 0.01);
  EXPECT_EQ((*slo)[4].quantity, SloTerm::Quantity::kGoodput);
  EXPECT_FALSE((*slo)[4].below);
  EXPECT_TRUE(ParseSlo("")->empty());
}

TEST(SloTest, WhatIsNoTermIsNamed) {
  for (const char* text :
       {"ttft", "ttft:p95", "ttft<1s", "ttft:p95>1s", "ttft:p101<1s", "ttft:p<1s", "ttft:p95<1x",
        "ttft:p95<-1s", "ttft:p95<", "latency:p95<1s", "errors>1%", "errors<x", "goodput<1", ",",
        "ttft:p95<1s,", "ttft:p95<1s,,itl:p99<1s", "ttft:p95<nan", "ttft:p95<inf"}) {
    const auto slo = ParseSlo(text);
    ASSERT_FALSE(slo.ok()) << text;
    EXPECT_EQ(slo.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(slo.status().message().find("--slo"), std::string::npos) << text;
  }
}

TEST(SloTest, DurationsAreRead) {
  EXPECT_EQ(ParseDuration("90"), 90);
  EXPECT_EQ(ParseDuration("1.5s"), 1.5);
  EXPECT_EQ(ParseDuration("10m"), 600);
  EXPECT_EQ(ParseDuration("24h"), 86400);
  EXPECT_DOUBLE_EQ(*ParseDuration("20ms"), 0.02);
  for (const char* text : {"", "s", "-1s", "1 s", "1d", "nan", "inf", "1e999"})
    EXPECT_FALSE(ParseDuration(text).has_value()) << text;
}

// An answer after `ttft` seconds, with four chunks `gap` apart.
Answer AnswerAfter(double ttft, double gap) {
  Answer answer;
  answer.outcome = Outcome::kOk;
  answer.t_first_content = ttft;
  for (int i = 0; i < 4; ++i) answer.t_chunks.push_back(ttft + i * gap);
  answer.chunks = 4;
  answer.t_last = ttft + 3 * gap;
  return answer;
}

TEST(SloTest, VerdictsFollowTheMeasurements) {
  Figures figures;
  for (int i = 1; i <= 100; ++i) {
    const Answer answer = AnswerAfter(i * 0.01, 0.02);
    figures.Add(answer, LatenciesOf(answer, false), true);
  }
  const Throughput throughput = ThroughputOf(figures, 10);
  const auto met = [&](const char* text) {
    const auto slo = ParseSlo(text);
    return slo.ok() && (*slo)[0].Evaluate(figures, throughput).met;
  };
  EXPECT_TRUE(met("ttft:p95<0.96s"));
  EXPECT_FALSE(met("ttft:p95<0.95s"));
  EXPECT_TRUE(met("ttft:max<=1s"));
  EXPECT_TRUE(met("itl:p99<21ms"));
  EXPECT_FALSE(met("itl:p99<19ms"));
  EXPECT_TRUE(met("errors<1%"));
  EXPECT_TRUE(met("goodput>9.9"));
  EXPECT_FALSE(met("goodput>10.1"));
  EXPECT_TRUE(met("tokens_per_s>39"));
}

TEST(SloTest, WhatWasNotMeasuredIsMissed) {
  const Figures figures;
  const auto slo = ParseSlo("ttft:p95<1h,errors<100%");
  ASSERT_TRUE(slo.ok());
  for (const SloTerm& term : *slo) EXPECT_FALSE(term.Evaluate(figures, {}).met);
}

TEST(SloTest, AGoodRequestKeepsEveryLimit) {
  const auto good = ParseGoodLimits("ttft<1s,itl<50ms,e2e<2s");
  ASSERT_TRUE(good.ok()) << good.status().message();
  const auto holds = [&](Answer answer) { return good->Holds(answer, LatenciesOf(answer, false)); };
  EXPECT_TRUE(holds(AnswerAfter(0.5, 0.04)));
  EXPECT_FALSE(holds(AnswerAfter(1.5, 0.04)));
  EXPECT_FALSE(holds(AnswerAfter(0.5, 0.06)));
  Answer failed = AnswerAfter(0.5, 0.04);
  failed.outcome = Outcome::kError;
  EXPECT_FALSE(holds(failed));
  EXPECT_FALSE(holds(Answer()));
  EXPECT_FALSE(ParseGoodLimits("ttft:p95<1s").ok());
  EXPECT_FALSE(ParseGoodLimits("ttft>1s").ok());
}

TEST(SloTest, TpotLeavesTheFirstTokenOut) {
  Answer answer = AnswerAfter(0.5, 0.1);
  answer.t_sent = 0.25;
  answer.output_tokens = 7;
  const Latencies closed = LatenciesOf(answer, false), open = LatenciesOf(answer, true);
  EXPECT_DOUBLE_EQ(*closed.ttft, 0.25);
  EXPECT_DOUBLE_EQ(*open.ttft, 0.5);
  EXPECT_DOUBLE_EQ(*closed.tpot, 0.3 / 6);
  EXPECT_DOUBLE_EQ(*open.tpot, *closed.tpot);
  EXPECT_DOUBLE_EQ(closed.queue, 0.25);
  answer.output_tokens = 1;
  EXPECT_FALSE(LatenciesOf(answer, false).tpot.has_value());
}

}  // namespace
}  // namespace thermocline::loadtest
