#include "engine/sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace thermocline::sampling {
namespace {

const std::vector<float> kLogits = {1.0F, 3.0F, 2.0F, -1.0F, 3.0F, 0.0F};

std::map<int, double> Frequencies(const SamplingParams& base, int draws = 20000) {
  Sampler sampler(static_cast<int>(kLogits.size()));
  sampler.Begin(base, {});
  std::map<int, double> out;
  for (int i = 0; i < draws; ++i) out[sampler.Sample(kLogits, i)] += 1.0 / draws;
  return out;
}

TEST(Sampler, GreedyTakesTheLowestOfEqualIds) {
  const auto frequencies = Frequencies({.temperature = 0, .logit_bias = {}});
  EXPECT_EQ(frequencies.size(), 1u);
  EXPECT_TRUE(frequencies.contains(1));
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    const auto got = Frequencies({.temperature = temperature, .seed = 5, .logit_bias = {}});
    double total = 0;
    for (const float logit : kLogits) total += std::exp(logit / temperature);
    for (std::size_t i = 0; i < kLogits.size(); ++i) {
      const double p = std::exp(kLogits[i] / temperature) / total,
                   sigma = std::sqrt(p * (1 - p) / 20000);
      EXPECT_NEAR(got.contains(static_cast<int>(i)) ? got.at(static_cast<int>(i)) : 0, p,
                  5 * sigma + 1e-9);
    }
  }
}

TEST(Sampler, TruncationKeepsTheRightTokens) {
  const auto kept = [](SamplingParams p) {
    std::vector<int> tokens;
    for (const auto& [token, share] : Frequencies(p, 5000)) tokens.push_back(token);
    return tokens;
  };
  EXPECT_EQ(kept({.top_k = 1, .logit_bias = {}}), (std::vector<int>{1}));
  EXPECT_EQ(kept({.top_k = 3, .logit_bias = {}}), (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(kept({.top_p = 0.5, .logit_bias = {}}), (std::vector<int>{1, 4}));
  EXPECT_EQ(kept({.top_p = 0.0, .logit_bias = {}}), (std::vector<int>{1}));
  EXPECT_EQ(kept({.min_p = 0.3, .logit_bias = {}}),
            (std::vector<int>{1, 2, 4}));  // e^-1 = 0.37, e^-2 = 0.14
}

TEST(Sampler, NucleusOfALargeVocabularyEqualsAFullSort) {
  std::vector<float> logits(5000);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = std::sin(static_cast<float>(i) * 12.9898F) * 4;
  Sampler sampler(5000);
  const SamplingParams params{.top_p = 0.9, .seed = 3, .logit_bias = {}};
  sampler.Begin(params, {});
  std::vector<int> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  double total = 0;
  for (const float l : logits) total += std::exp(double{l});
  std::map<int, bool> nucleus;
  double sum = 0;
  for (const int token : order) {
    if (sum >= 0.9 * total) break;
    nucleus[token] = true;
    sum += std::exp(double{logits[static_cast<std::size_t>(token)]});
  }
  std::map<int, bool> seen;
  // Computed once; it need not be sorted again for each draw.
  const Distribution& distribution = sampler.Compute(logits);
  for (int i = 0; i < 40000; ++i)
    seen[sampler.random_source().Pick(distribution, static_cast<std::uint64_t>(i),
                                      Stream::kToken)] = true;
  EXPECT_EQ(distribution.size(), nucleus.size());
  for (const auto& [token, unused] : seen) EXPECT_TRUE(nucleus.contains(token)) << token;
  EXPECT_GT(seen.size(), nucleus.size() * 9 / 10);
}

TEST(Sampler, PenaltiesAndBias) {
  Sampler sampler(6);
  SamplingParams p{.temperature = 0, .logit_bias = {}};
  p.frequency_penalty = 0.6;
  sampler.Begin(p, {});
  sampler.Accept(1);
  EXPECT_EQ(sampler.Sample(kLogits, 0), 4);
  sampler.Accept(4);
  sampler.Accept(4);
  EXPECT_EQ(sampler.Sample(kLogits, 1), 1);  // 3 - 0.6 against 2
  p = {.temperature = 0, .repetition_penalty = 2.0, .logit_bias = {}};
  sampler.Begin(p, std::vector<int>{1, 4});
  EXPECT_EQ(sampler.Sample(kLogits, 0), 2);
  p = {.temperature = 0, .logit_bias = {{3, 100.0F}}};
  sampler.Begin(p, {});
  EXPECT_EQ(sampler.Sample(kLogits, 0), 3);
  p = {.temperature = 0, .logit_bias = {}};
  sampler.Begin(p, {});  // state of earlier sequences is reset
  EXPECT_EQ(sampler.Sample(kLogits, 0), 1);
}

TEST(Sampler, DrawsDependOnSeedAndPositionAlone) {
  Distribution d;
  for (int token = 0; token < 1000; ++token) d.Add(token, 1);
  const auto pick = [&](std::uint64_t seed, std::uint64_t position, Stream stream) {
    return SeededRandomSource(seed).Pick(d, position, stream);
  };
  const int token = pick(7, 3, Stream::kToken);
  EXPECT_EQ(pick(7, 3, Stream::kToken), token);
  EXPECT_NE(pick(7, 4, Stream::kToken), token);
  EXPECT_NE(pick(8, 3, Stream::kToken), token);
  EXPECT_NE(pick(7, 3, Stream::kCorrection), token);
}

TEST(Sampler, ParametersOutOfRangeAreNamed) {
  for (const SamplingParams& bad : {SamplingParams{.temperature = -1, .logit_bias = {}},
                                    SamplingParams{.temperature = std::nan(""), .logit_bias = {}},
                                    SamplingParams{.top_p = 1.5, .logit_bias = {}},
                                    SamplingParams{.typical_p = -0.1, .logit_bias = {}},
                                    SamplingParams{.presence_penalty = 3, .logit_bias = {}},
                                    SamplingParams{.dry_multiplier = -1, .logit_bias = {}},
                                    SamplingParams{.dry_base = 0.5, .logit_bias = {}},
                                    SamplingParams{.dry_allowed_length = 0, .logit_bias = {}},
                                    SamplingParams{.dry_penalty_last_n = -2, .logit_bias = {}},
                                    SamplingParams{.min_tokens = -1, .logit_bias = {}}}) {
    EXPECT_EQ(ValidateSampling(bad).code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace thermocline::sampling
