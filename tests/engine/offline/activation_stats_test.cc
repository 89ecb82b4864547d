#include "engine/offline/activation_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace thermocline::offline {
namespace {

// Counts of neurons whose frequency is min(0.98, scale rank^-exponent), in random order.
std::vector<std::uint32_t> ZipfCounts(double exponent, double scale, int tokens) {
  std::mt19937 random(11);
  std::vector<std::uint32_t> counts;
  for (int rank = 1; rank <= 4000; ++rank) {
    std::binomial_distribution<std::uint32_t> draw(
        static_cast<std::uint32_t>(tokens), std::min(0.98, scale * std::pow(rank, -exponent)));
    counts.push_back(draw(random));
  }
  std::shuffle(counts.begin(), counts.end(), random);
  return counts;
}

TEST(Zipf, FindsThePlantedExponent) {
  for (const double exponent : {0.5, 0.8, 1.2}) {
    for (const double scale : {0.5, 20.0}) {  // 20: more than a hundred neurons are always active
      const ZipfFit fit = FitZipf(ZipfCounts(exponent, scale, 20000), 20000);
      EXPECT_NEAR(fit.exponent, exponent, 0.04) << scale;
      EXPECT_GT(fit.r_squared, 0.98);
      EXPECT_GT(fit.ranks, 100);
    }
  }
}

TEST(Zipf, EvenUseHasNoExponent) {
  const std::vector<std::uint32_t> even(100, 50), none(100, 0);
  EXPECT_NEAR(FitZipf(even, 1000).exponent, 0, 1e-9);
  EXPECT_EQ(FitZipf(none, 1000).ranks, 0);
  EXPECT_EQ(FitZipf({}, 0).ranks, 0);
}

TEST(HotShare, OfAFewCounts) {
  const std::vector<std::uint32_t> counts = {1, 50, 30, 1, 10, 5, 1, 1, 1, 0};
  EXPECT_DOUBLE_EQ(HotShare(counts, 0.8), 0.2);  // 50 + 30 of 100
  EXPECT_DOUBLE_EQ(HotShare(counts, 0.81), 0.3);
  EXPECT_DOUBLE_EQ(HotShare(counts, 1), 0.9);
  EXPECT_EQ(HotShare(std::vector<std::uint32_t>(5), 0.8), 0);
}

TEST(Histogram, EveryNeuronIsInOneBin) {
  const std::vector<std::uint32_t> counts = {0, 0, 1, 10, 11, 100, 1000};
  const auto bins = FrequencyHistogram(counts, 1000);
  EXPECT_EQ(std::accumulate(bins.begin(), bins.end(), 0,
                            [](int sum, const FrequencyBin& b) { return sum + b.neurons; }),
            7);
  EXPECT_EQ(bins[0].neurons, 2);      // never
  EXPECT_EQ(bins[1].neurons, 1);      // up to 0.001
  EXPECT_EQ(bins[3].neurons, 1);      // 0.01
  EXPECT_EQ(bins[4].neurons, 1);      // up to 0.03
  EXPECT_EQ(bins[5].neurons, 1);      // 0.1
  EXPECT_EQ(bins.back().neurons, 1);  // always
}

TEST(ActivationCounter, OverlapAndUnionsOfKnownSets) {
  // Token t activates neurons t .. t + 9 of 100: nine of ten are kept, w tokens activate 9 + w.
  ActivationCounter counter(100);
  for (int sequence = 0; sequence < 2; ++sequence) {
    counter.BeginSequence();
    for (int t = 0; t < 32; ++t) {
      std::vector<float> neurons(100);
      for (int i = 0; i < 10; ++i) neurons[static_cast<std::size_t>(t + i)] = -0.5F;
      counter.Add(neurons);
    }
  }
  EXPECT_EQ(counter.tokens(), 64);
  EXPECT_DOUBLE_EQ(counter.active_share(), 0.1);
  EXPECT_DOUBLE_EQ(counter.overlap(), 0.9);
  for (std::size_t i = 0; i < kUnionWindows.size(); ++i)
    EXPECT_DOUBLE_EQ(counter.union_share(i), (9 + kUnionWindows[i]) / 100.0);
  EXPECT_EQ(counter.counts()[0], 2U);
  EXPECT_EQ(counter.counts()[20], 20U);
  EXPECT_EQ(counter.counts()[99], 0U);
}

TEST(ActivationCounter, SequencesDoNotTouch) {
  ActivationCounter counter(4);
  for (int i = 0; i < 5; ++i) {
    counter.BeginSequence();
    counter.Add(std::vector<float>{1, 0, 0, 0});
  }
  EXPECT_EQ(counter.overlap(), 0);
  EXPECT_EQ(counter.union_share(0), 0);
  EXPECT_DOUBLE_EQ(counter.active_share(), 0.25);
}

}  // namespace
}  // namespace thermocline::offline
