#include "loadtest/measure/samples.h"

#include <gtest/gtest.h>

#include <cmath>

namespace thermocline::loadtest {
namespace {

// numpy.percentile, numpy.mean and numpy.std of the same values (NumPy 2, default method).
TEST(SamplesTest, PercentilesAreNumPys) {
  Samples samples;
  for (const double value : {3.5, 1.25, 9.75, 2.0, 2.0, 7.125, 0.5, 4.0, 6.25, 5.5, 8.0})
    samples.Add(value);
  constexpr std::pair<double, double> kGolden[] = {
      {0, 0.5}, {50, 4.0}, {90, 8.0}, {95, 8.875}, {99, 9.575}, {99.9, 9.7325}, {100, 9.75}};
  for (const auto& [q, value] : kGolden) EXPECT_NEAR(samples.Percentile(q), value, 1e-12) << q;
  EXPECT_NEAR(samples.mean(), 4.534090909090909, 1e-12);
  EXPECT_NEAR(samples.std_dev(), 2.877267341658036, 1e-12);
  EXPECT_EQ(samples.min(), 0.5);
  EXPECT_EQ(samples.max(), 9.75);
  EXPECT_FALSE(samples.sampled());
}

TEST(SamplesTest, PercentilesOfManyValuesInAnyOrder) {
  Samples samples;
  for (int i = 0; i < 1009; ++i) samples.Add((i * 7919 % 1009) / 7.0);
  constexpr std::pair<double, double> kGolden[] = {
      {50, 72.0}, {90, 129.6}, {95, 136.8}, {99, 142.56}, {99.9, 143.856}};
  for (const auto& [q, value] : kGolden) EXPECT_NEAR(samples.Percentile(q), value, 1e-9) << q;
}

TEST(SamplesTest, OneValueAndNone) {
  Samples samples;
  EXPECT_EQ(samples.Percentile(99), 0);
  EXPECT_EQ(samples.ToJson().Find("count")->as_int(), 0);
  samples.Add(2.5);
  EXPECT_EQ(samples.Percentile(0), 2.5);
  EXPECT_EQ(samples.Percentile(99.9), 2.5);
  EXPECT_EQ(samples.std_dev(), 0);
}

// A long run keeps a bounded number of values, and its percentiles stay near those of all values.
TEST(SamplesTest, MemoryIsBoundedAndTheSampleIsFair) {
  constexpr std::size_t kKept = 5000;
  Samples samples(kKept);
  Random random(11);
  for (int i = 0; i < 200000; ++i) samples.Add(random.Exponential(1));
  EXPECT_TRUE(samples.sampled());
  EXPECT_EQ(samples.sorted().size(), kKept);
  EXPECT_EQ(samples.count(), 200000u);
  EXPECT_NEAR(samples.mean(), 1, 0.02);
  EXPECT_NEAR(samples.Percentile(50), std::log(2), 0.06);
  EXPECT_NEAR(samples.Percentile(90), std::log(10), 0.2);
  EXPECT_EQ(samples.ToJson().Find("sampled")->as_int(), static_cast<std::int64_t>(kKept));
}

}  // namespace
}  // namespace thermocline::loadtest
