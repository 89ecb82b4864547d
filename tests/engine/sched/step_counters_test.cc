#include "engine/sched/step_counters.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace thermocline::sched {
namespace {

constexpr std::array kBorders = {1., 2., 4.};

TEST(StepHistogram, ABorderBelongsToTheBucketBelowIt) {
  StepHistogram<kBorders> histogram;
  for (const double value : {0.0, 1.0, 1.5, 2.0, 2.5, 4.0, 4.5, 1e9}) histogram.Add(value);
  const auto read = histogram.Read();
  EXPECT_EQ(read.counts, (std::array<std::int64_t, 4>{2, 2, 2, 2}));
  EXPECT_EQ(read.sum, 1e9 + 15.5);
}

TEST(StepHistogram, BordersAscend) {
  EXPECT_TRUE(std::is_sorted(kStepSecondsBorders.begin(), kStepSecondsBorders.end()));
  EXPECT_TRUE(std::is_sorted(kStepTokensBorders.begin(), kStepTokensBorders.end()));
}

// The values that a scrape may see while the decode thread counts. Also run by ThreadSanitizer.
TEST(StepHistogram, AReaderSeesNumbersGrow) {
  constexpr std::int64_t kValues = 200'000;
  StepHistogram<kBorders> histogram;
  std::thread writer([&] {
    for (std::int64_t i = 0; i < kValues; ++i) histogram.Add(static_cast<double>(i % 4 + 1));
  });
  BucketCounts<kBorders.size()> before;
  const auto count = [&] {
    return std::accumulate(before.counts.begin(), before.counts.end(), std::int64_t{0});
  };
  while (count() < kValues) {
    const auto now = histogram.Read();
    for (std::size_t i = 0; i < now.counts.size(); ++i) ASSERT_GE(now.counts[i], before.counts[i]);
    ASSERT_GE(now.sum, before.sum);
    before = now;
  }
  writer.join();
  EXPECT_EQ(histogram.Read().counts,
            (std::array<std::int64_t, 4>{kValues / 4, kValues / 4, kValues / 2, 0}));
  EXPECT_EQ(histogram.Read().sum, 2.5 * kValues);
}

}  // namespace
}  // namespace thermocline::sched
