// Hit rates on traces whose best rates are known.
#include "engine/offline/hit_rates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace thermocline::offline {
namespace {

double Rate(const HitCounts& counts, HitPolicy policy, int w, std::size_t rounds) {
  return counts[static_cast<std::size_t>(policy)][static_cast<std::size_t>(w - 1)] /
         static_cast<double>(rounds);
}

// Rounds of n tokens in which a token of class c is accepted with `accepted[c]`, with equally
// frequent classes; the draft's alternatives replace a rejected token with `others`.
std::vector<RecordedRound> Sample(int n, const std::vector<double>& accepted,
                                  const std::vector<double>& others, int count, unsigned seed) {
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::vector<RecordedRound> rounds;
  for (int i = 0; i < count; ++i) {
    RecordedRound r{.n = n};
    bool refused = false;
    for (int j = 0; j <= n; ++j) {
      const auto c = static_cast<std::size_t>(random() % accepted.size());
      r.confidence.push_back(static_cast<int>(c));
      const bool right = uniform() < accepted[c];
      if (j < n && !refused && right) ++r.k;
      if (j == n && !refused && right) r.rank = 1;
      refused = refused || !right;
    }
    double u = uniform();
    for (std::size_t o = 0; o < others.size() && r.rank == 0 && refused; ++o) {
      if (u < others[o]) r.rank = static_cast<int>(o) + (r.k == n ? 2 : 1);
      u -= others[o];
    }
    rounds.push_back(r);
  }
  return rounds;
}

// The sum of the w greatest probabilities of an outcome (k, token). Token j is accepted with
// probability `accepted[j]`; after a rejection, the draft's guess i is right with `others[i]`.
double BestRate(const std::vector<double>& accepted, const std::vector<double>& others, int w) {
  std::vector<double> outcomes;
  double reached = 1;
  for (std::size_t j = 0; j < accepted.size(); ++j) {  // the last is the next token
    for (const double other : others) outcomes.push_back(reached * (1 - accepted[j]) * other);
    reached *= accepted[j];
  }
  outcomes.push_back(reached);
  std::sort(outcomes.rbegin(), outcomes.rend());
  double sum = 0;
  for (std::size_t i = 0; i < outcomes.size() && static_cast<int>(i) < w; ++i) sum += outcomes[i];
  return sum;
}

constexpr int kCount = 20000;
constexpr double kError = 0.014;  // four standard errors of a share of 20,000

// Every round has the same outcome. If it is a length between 0 and n, phi cannot give it
// probability 1, and the paper's policy does not find it; a token of low confidence reveals it.
TEST(HitRates, WhatAlwaysComesIsFound) {
  const std::size_t count = 200;
  const HitCounts whole = CountHits(std::vector<RecordedRound>(count, {.n = 4, .k = 4, .rank = 1}));
  for (const HitPolicy policy : kHitPolicies)
    EXPECT_GE(Rate(whole, policy, 1, count), 0.95) << HitPolicyName(policy);
  const RecordedRound middle{.n = 4, .k = 2, .rank = 2, .confidence = {9, 9, 1, 9}};
  const HitCounts part = CountHits(std::vector<RecordedRound>(count, middle));
  EXPECT_GE(Rate(part, HitPolicy::kOurs, 1, count), 0.95);
  EXPECT_EQ(Rate(part, HitPolicy::kOracle, 1, count), 1);
  EXPECT_EQ(Rate(part, HitPolicy::kHindsight, 1, count), 1);
  EXPECT_EQ(Rate(part, HitPolicy::kPaper, kBranchesMax, count), 0);
  const HitCounts unknown =
      CountHits(std::vector<RecordedRound>(count, {.n = 4, .k = 2, .rank = 0}));
  for (const HitPolicy policy : kHitPolicies)
    EXPECT_EQ(Rate(unknown, policy, kBranchesMax, count), 0);
}

TEST(HitRates, WithoutConfidencesTheOracleIsReached) {
  const double p = 0.7;
  const std::vector<double> others = {0.5, 0.2};
  for (const int n : {2, 5, 8}) {
    const auto rounds = Sample(n, {p}, others, kCount, 1);
    const HitCounts counts = CountHits(rounds);
    const std::vector<double> accepted(static_cast<std::size_t>(n + 1), p);
    for (const int w : {1, 2, 4, 8}) {
      const double best = BestRate(accepted, others, w);
      EXPECT_NEAR(Rate(counts, HitPolicy::kOracle, w, kCount), best, kError);
      EXPECT_NEAR(Rate(counts, HitPolicy::kHindsight, w, kCount), best, kError);
      // phi forgets, so it is wrong by the uncertainty of 92 rounds.
      EXPECT_NEAR(Rate(counts, HitPolicy::kPhi, w, kCount), best, kError + 0.02) << n << " " << w;
      EXPECT_NEAR(Rate(counts, HitPolicy::kOurs, w, kCount), best, kError);
    }
    // The paper's policy drafts for every length, though only the branch after k = n can be right.
    EXPECT_NEAR(Rate(counts, HitPolicy::kPaper, kBranchesMax, kCount), std::pow(p, n + 1), kError);
    EXPECT_LE(Rate(counts, HitPolicy::kPaper, 1, kCount), std::pow(p, n + 1) + kError);
  }
}

// The confidence of each token is one of two classes. The best rate is then the mean of BestRate
// over all sequences of classes, and a policy without confidences does not reach it.
TEST(HitRates, ConfidencesAreWorthWhatTheyTell) {
  const int n = 3;
  const std::vector<double> of_class = {0.3, 0.97}, others = {0.6};
  const auto rounds = Sample(n, of_class, others, kCount, 2);
  const HitCounts counts = CountHits(rounds);
  for (const int w : {1, 2}) {
    double best = 0;
    for (unsigned pattern = 0; pattern < 16; ++pattern) {
      std::vector<double> accepted;
      for (unsigned j = 0; j < 4; ++j) accepted.push_back(of_class[(pattern >> j) & 1]);
      best += BestRate(accepted, others, w) / 16;
    }
    const double blind = BestRate(std::vector<double>(4, 0.635), others, w);
    ASSERT_GT(best, blind + 0.1);
    EXPECT_NEAR(Rate(counts, HitPolicy::kOracle, w, kCount), blind, kError);
    EXPECT_NEAR(Rate(counts, HitPolicy::kHindsight, w, kCount), best, kError);
    EXPECT_NEAR(Rate(counts, HitPolicy::kOurs, w, kCount), best, kError);
    EXPECT_LT(Rate(counts, HitPolicy::kPhi, w, kCount), blind + kError);
  }
}

// An additional round does not change the results of earlier ones, for policies that cannot foresee
// it.
TEST(HitRates, OursDoesNotSeeTheFuture) {
  auto rounds = Sample(4, {0.5, 0.9}, {0.5, 0.2}, 200, 3);
  const HitCounts before = CountHits(rounds);
  for (int k = 0; k <= 4; ++k) {
    rounds.push_back({.n = 4, .k = k, .rank = 1, .confidence = {0, 1, 0, 1}});
    const HitCounts after = CountHits(rounds);
    rounds.pop_back();
    for (const HitPolicy policy : {HitPolicy::kOurs, HitPolicy::kPhi, HitPolicy::kPaper}) {
      for (std::size_t w = 0; w < kBranchesMax; ++w) {
        const int more = after[static_cast<std::size_t>(policy)][w] -
                         before[static_cast<std::size_t>(policy)][w];
        EXPECT_TRUE(more == 0 || more == 1);
      }
    }
  }
}

// Six of ten drafts are fully accepted; the next token is known for every fourth, and is always the
// draft's. So it comes first, before the four of ten that are rejected at once.
TEST(HitRates, UnknownRanksAreNotGuessesThatFailed) {
  std::vector<RecordedRound> rounds;
  int known = 0;
  for (int i = 0; i < 1000; ++i) {
    const bool whole = i % 5 < 3;
    if (whole && i % 4 == 0) ++known;
    rounds.push_back({.n = 3, .k = whole ? 3 : 0, .rank = whole && i % 4 > 0 ? -1 : 1});
  }
  const HitCounts counts = CountHits(rounds);
  for (const HitPolicy policy : {HitPolicy::kOurs, HitPolicy::kPhi, HitPolicy::kHindsight})
    EXPECT_NEAR(counts[static_cast<std::size_t>(policy)][0], known, 10) << HitPolicyName(policy);
  EXPECT_EQ(counts[static_cast<std::size_t>(HitPolicy::kOracle)][1], known + 400);
}

TEST(HitRates, MoreBranchesHitMoreAndNothingIsNothing) {
  const HitCounts none = CountHits({});
  EXPECT_EQ(none[0][0], 0);
  const HitCounts counts = CountHits(Sample(6, {0.4, 0.8, 0.9}, {0.4, 0.2, 0.1}, 2000, 4));
  for (const auto& by_width : counts) EXPECT_TRUE(std::is_sorted(by_width.begin(), by_width.end()));
}

}  // namespace
}  // namespace thermocline::offline
