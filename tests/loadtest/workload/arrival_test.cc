#include "loadtest/workload/arrival.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

namespace thermocline::loadtest {
namespace {

struct Gaps {
  double mean = 0, variation = 0;  // standard deviation / mean
};

Gaps GapsOf(ArrivalProcess& arrivals, int count) {
  double last = 0, sum = 0, squares = 0;
  for (int i = 0; i < count; ++i) {
    const double time = *arrivals.Next();
    EXPECT_GE(time, last);
    sum += time - last;
    squares += (time - last) * (time - last);
    last = time;
  }
  const double mean = sum / count;
  return {.mean = mean, .variation = std::sqrt(squares / count - mean * mean) / mean};
}

// The coefficient of variation of a gamma distribution is 1 / sqrt(shape).
TEST(ArrivalTest, GapsHaveTheRateAndTheVariationOfTheirDistribution) {
  for (const double shape : {0.25, 0.5, 1.0, 4.0, 100.0}) {
    const auto arrivals = GammaArrivals(50, shape, 7);
    const Gaps gaps = GapsOf(*arrivals, 200000);
    EXPECT_NEAR(gaps.mean * 50, 1, 0.02) << shape;
    EXPECT_NEAR(gaps.variation * std::sqrt(shape), 1, 0.02) << shape;
  }
}

// In a Poisson process, the variance of arrivals per second equals their mean.
TEST(ArrivalTest, PoissonCountsVaryAsTheirMean) {
  const auto arrivals = GammaArrivals(20, 1, 3);
  std::vector<int> counts(5000);
  while (true) {
    const auto second = static_cast<std::size_t>(*arrivals->Next());
    if (second >= counts.size()) break;
    ++counts[second];
  }
  double sum = 0, squares = 0;
  for (const int count : counts) {
    sum += count;
    squares += count * count;
  }
  const auto n = static_cast<double>(counts.size());
  EXPECT_NEAR(sum / n, 20, 0.3);
  EXPECT_NEAR(squares / n - sum / n * (sum / n), 20, 1.5);
}

TEST(ArrivalTest, ASeedRepeatsItselfAndAnotherDoesNot) {
  const auto a = GammaArrivals(10, 0.5, 1), b = GammaArrivals(10, 0.5, 1),
             c = GammaArrivals(10, 0.5, 2);
  bool different = false;
  for (int i = 0; i < 100; ++i) {
    const auto time = a->Next();
    EXPECT_EQ(time, b->Next());
    different = different || time != c->Next();
  }
  EXPECT_TRUE(different);
}

TEST(ArrivalTest, ConstantArrivalsDoNotDrift) {
  const auto arrivals = ConstantArrivals(3);
  for (int i = 0; i < 100; ++i) EXPECT_DOUBLE_EQ(*arrivals->Next(), i / 3.0);
}

std::string WriteTrace(const std::string& text) {
  const std::string path = testing::TempDir() + "trace.jsonl";
  std::ofstream(path) << text;
  return path;
}

TEST(ArrivalTest, ATraceIsSortedAndBeginsAtZero) {
  const auto trace = ReadTrace(
      WriteTrace("{\"t\": 12, \"prompt_tokens\": 30, \"max_tokens\": 7}\n\n{\"t\": 10}\r\n"
                 "{\"timestamp\": 11000, \"input_length\": 4, \"output_length\": 5}\n"),
      2);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->size(), 3u);
  EXPECT_EQ((*trace)[0].time, 0);
  EXPECT_EQ((*trace)[1].time, 0.5);
  EXPECT_EQ((*trace)[1].prompt_tokens, 4);
  EXPECT_EQ((*trace)[1].max_tokens, 5);
  EXPECT_EQ((*trace)[2].time, 1);
  EXPECT_EQ((*trace)[2].max_tokens, 7);
}

TEST(ArrivalTest, ATracesBadLineIsNamed) {
  const auto no_time = ReadTrace(WriteTrace("{\"t\": 1}\n{\"prompt_tokens\": 3}\n"), 1);
  ASSERT_FALSE(no_time.ok());
  EXPECT_NE(no_time.status().message().find("trace.jsonl:2"), std::string::npos);
  EXPECT_FALSE(ReadTrace(WriteTrace("\n \n"), 1).ok());
  EXPECT_FALSE(ReadTrace(WriteTrace("{\"t\": 1"), 1).ok());
}

}  // namespace
}  // namespace thermocline::loadtest
