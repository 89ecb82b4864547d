// The simulator against closed forms, against the expectation over all outcomes, and against laws
// that hold for any pair.
#include "engine/offline/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace thermocline::offline {
namespace {

constexpr std::int64_t kTokens = 200000;
// The relative error of tokens per second: five standard errors of the sum of at least 12,500
// rounds, whose tokens and times vary by less than themselves, are below 4.5%; most are far below.
constexpr double kNoise = 0.02;

const std::vector<double> kVerify = {10, 11, 12, 13, 14, 15, 16, 17, 18};

PairModel Pair(const spec::Phi& phi) {
  return {.draft_token_s = 1.5,
          .verify_s = kVerify,
          .phi = phi,
          .correction_hits = {0.5, 0.2},
          .bonus_hit = 0.8};
}

double Speed(const PairModel& pair, SpecMode mode, int n, int width = 2) {
  return Simulate(pair, mode, n, width, kTokens).tokens_per_s;
}

TEST(Simulator, VerifyGoesOnByTheLastDifference) {
  const PairModel pair = Pair({});
  EXPECT_EQ(pair.Verify(1), 10);
  EXPECT_EQ(pair.Verify(9), 18);
  EXPECT_EQ(pair.Verify(12), 21);
  EXPECT_EQ((PairModel{.verify_s = {3}}.Verify(9)), 3);
  EXPECT_EQ((PairModel{.verify_s = {4, 3}}.Verify(9)), 3);  // noise is not extrapolated below zero
}

TEST(Simulator, GuessesShareWhatTheNextTokenLeaves) {
  const PairModel pair = Pair({});
  EXPECT_EQ(pair.GuessHit(0, 2, 4), 0.5);
  EXPECT_EQ(pair.GuessHit(1, 2, 4), 0.2);
  EXPECT_EQ(pair.GuessHit(2, 2, 4), 0);
  EXPECT_EQ(pair.GuessHit(0, 4, 4), 0.8);
  EXPECT_NEAR(pair.GuessHit(1, 4, 4), 0.1, 1e-15);
}

TEST(Simulator, OffAndNoTokensArePlain) {
  const PairModel pair = Pair({});
  EXPECT_EQ(Speed(pair, SpecMode::kOff, 8), 0.1);
  for (const SpecMode mode : {SpecMode::kSync, SpecMode::kBranch, SpecMode::kExhaustive})
    EXPECT_EQ(Speed(pair, mode, 0), 0.1);
}

TEST(Simulator, SyncIsLeviathans) {
  for (const spec::Phi& phi :
       {spec::Phi{.p = 0.8, .a = 1, .c = 0}, spec::Phi{.p = 0.6, .a = 0.5, .c = 0.01}}) {
    const PairModel pair = Pair(phi);
    for (const int n : {1, 4, 8, 15}) {
      const double round_s = 1.5 * n + pair.Verify(n + 1);
      const SimulatedRun run = Simulate(pair, SpecMode::kSync, n, 2, kTokens);
      EXPECT_NEAR(run.tokens_per_s * round_s / (phi.Mean(n) + 1), 1, kNoise) << n;
      EXPECT_NEAR(run.accepted_mean / phi.Mean(n), 1, kNoise);
      EXPECT_NEAR(run.wait_share, 1.5 * n / round_s, 1e-3);
      EXPECT_NEAR(run.wasted_share, 1 - phi.Mean(n) / n, kNoise);
      EXPECT_EQ(run.branch_hit_rate, 0);
    }
  }
}

// Every token rejected, or every one accepted, and each guess right: the next draft costs time only
// if it takes longer than the target. After n tokens the guess is a drafted token, too.
TEST(Simulator, PerfectGuessesHideTheDraft) {
  PairModel pair = Pair({.p = 0, .a = 1, .c = 0});
  pair.correction_hits = {1};
  pair.bonus_hit = 1;
  for (const double token_s : {0.1, 1.5, 4.0}) {
    pair.draft_token_s = token_s;
    for (const int n : {1, 4, 8, 15}) {
      const double verify_s = pair.Verify(n + 1);
      pair.phi.p = 0;  // k = 0
      EXPECT_NEAR(Speed(pair, SpecMode::kBranch, n), 1 / std::max(verify_s, n * token_s), 1e-5);
      pair.phi.p = 1;  // k = n
      EXPECT_NEAR(Speed(pair, SpecMode::kBranch, n),
                  (n + 1) / std::max(verify_s, (n + 1) * token_s), 2e-3);
      const SimulatedRun run = Simulate(pair, SpecMode::kBranch, n, 1, kTokens);
      EXPECT_EQ(run.branch_hit_rate, 1);
      EXPECT_NEAR(run.wasted_share, 0, 1e-3);
    }
  }
  pair.draft_token_s = 0;  // no waiting, whatever the outcome
  pair.phi = {.p = 0.7, .a = 1, .c = 0};
  EXPECT_NEAR(Speed(pair, SpecMode::kBranch, 8) * pair.Verify(9) / (pair.phi.Mean(8) + 1), 1,
              kNoise);
}

TEST(Simulator, GuessesThatAreNeverRightAreSync) {
  PairModel pair = Pair({.p = 0.8, .a = 1, .c = 0});
  pair.correction_hits = {};
  pair.bonus_hit = 0;
  for (const int n : {1, 5, 15})
    EXPECT_EQ(Speed(pair, SpecMode::kBranch, n), Speed(pair, SpecMode::kSync, n));
}

// The mean time of a round over all outcomes, with three branches complete by the end of the
// verification, and one token of the fourth.
TEST(Simulator, BranchIsItsExpectationOverTheOutcomes) {
  PairModel pair = Pair({.p = 0.75, .a = 0.9, .c = 0.005});
  pair.verify_s = {21};  // 14 tokens: 5 after (4, next), then 4 each
  pair.round_overhead_s = 0.7;
  const int n = 4;
  std::vector<double> outcomes = {pair.phi(4, 4) * 0.8, pair.phi(4, 4) * 0.1};
  for (int k = 0; k < n; ++k) {
    outcomes.push_back(pair.phi(k, 4) * 0.5);
    outcomes.push_back(pair.phi(k, 4) * 0.2);
  }
  std::sort(outcomes.rbegin(), outcomes.rend());
  ASSERT_EQ(outcomes[0], pair.phi(4, 4) * 0.8);
  const double whole = outcomes[0] + outcomes[1] + outcomes[2], part = outcomes[3];
  const double round_s = 21.7 + part * 3 * 1.5 + (1 - whole - part) * n * 1.5;
  const SimulatedRun run = Simulate(pair, SpecMode::kBranch, n, 2, kTokens);
  EXPECT_NEAR(run.branch_hit_rate, whole + part, 0.01);
  EXPECT_NEAR(run.tokens_per_s * round_s / (pair.phi.Mean(n) + 1), 1, 0.01);
}

TEST(Simulator, TheTokenItIsAtIsWaitedFor) {
  PairModel pair = Pair({.p = 0, .a = 1, .c = 0});
  pair.verify_s = {4};
  pair.correction_hits = {1e-12};  // drafted for, and never right
  const SimulatedRun run = Simulate(pair, SpecMode::kBranch, 4, 1, kTokens);
  EXPECT_NEAR(run.tokens_per_s, 1 / (4 + 0.5 + 4 * 1.5), 1e-5);  // 2 2/3 tokens in 4 s
  EXPECT_NEAR(run.wasted_share, 1, 1e-12);
  // The first of two branches always hits: 8 s are its 4 tokens and 1 1/3 of the other's.
  pair.correction_hits = {1, 1e-12};
  pair.verify_s = {8};
  EXPECT_NEAR(Simulate(pair, SpecMode::kBranch, 4, 2, kTokens).tokens_per_s, 1 / (8 + 1.0), 1e-5);
}

TEST(Simulator, ExhaustiveWaitsForAll) {
  PairModel pair = Pair({.p = 0.75, .a = 1, .c = 0});
  for (const int width : {1, 2}) {
    const int n = 3;
    const double all_s = 1.5 * ((n + 1) * width * n + 1), verify_s = pair.Verify(n + 1);
    const double hit =
        pair.phi(n, n) * (width == 1 ? 0.8 : 0.9) + (1 - pair.phi(n, n)) * (width == 1 ? 0.5 : 0.7);
    const double round_s = std::max(all_s, verify_s) + (1 - hit) * n * 1.5;
    const SimulatedRun run = Simulate(pair, SpecMode::kExhaustive, n, width, kTokens);
    EXPECT_NEAR(run.branch_hit_rate, hit, 0.01);
    EXPECT_NEAR(run.tokens_per_s * round_s / (pair.phi.Mean(n) + 1), 1, kNoise);
  }
}

// Branches share steps: the next token, then n steps for each 16 of them.
TEST(Simulator, ExhaustiveDraftsInCommonSteps) {
  PairModel pair = Pair({.p = 0, .a = 1, .c = 0});
  pair.correction_hits = {1};
  pair.bonus_hit = 1;
  for (const double share : {0.0, 0.25, 1.0}) {
    pair.path_share = share;
    for (const int n : {3, 9, 20}) {  // 8, 20 and 42 branches
      const int branches = 2 * (n + 1), groups = (branches + 15) / 16;
      const double all_s = 1.5 * (1 + n * (groups + share * (branches - groups)));
      const SimulatedRun run = Simulate(pair, SpecMode::kExhaustive, n, 2, kTokens);
      EXPECT_NEAR(run.tokens_per_s * std::max(all_s, pair.Verify(n + 1)), 1, 1e-4) << share << n;
      EXPECT_NEAR(run.wasted_share, 1, 1e-3);  // no draft is ever accepted
    }
  }
}

TEST(Simulator, AFurtherTokensShareOfAStep) {
  EXPECT_NEAR((PairModel{.verify_s = {10, 11, 12}}.VerifyShare()), 0.1, 1e-12);
  EXPECT_EQ((PairModel{.verify_s = {10}}.VerifyShare()), 1);
  EXPECT_EQ((PairModel{.verify_s = {10, 9}}.VerifyShare()), 0);
  EXPECT_EQ((PairModel{.verify_s = {10, 50}}.VerifyShare()), 1);
}

// Two programs that share one core are no faster together.
TEST(Simulator, OneResourceForBothGainsNothing) {
  std::mt19937_64 random(4);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (int i = 0; i < 60; ++i) {
    PairModel pair = Pair({.p = uniform(), .a = 1, .c = 0});
    pair.draft_token_s = 0.1 + 4 * uniform();
    pair.bonus_hit = uniform();
    pair.draft_slowdown = pair.verify_slowdown = 2;
    const int n = 1 + static_cast<int>(random() % 15);
    const double sync = Speed(pair, SpecMode::kSync, n);
    EXPECT_LE(Speed(pair, SpecMode::kBranch, n), sync * (1 + kNoise)) << i;
    EXPECT_LE(Speed(pair, SpecMode::kExhaustive, n), sync * (1 + kNoise)) << i;
    // On separate cores branch mode is at least as fast as sync, except for the one drafted token
    // that the target waits for.
    pair.draft_slowdown = pair.verify_slowdown = 1;
    const double round_s = n * pair.draft_token_s + pair.Verify(n + 1);
    EXPECT_GE(Speed(pair, SpecMode::kBranch, n) * (1 + pair.draft_token_s / round_s),
              sync * (1 - kNoise));
  }
}

TEST(Simulator, IsTheSameForASeed) {
  const PairModel pair = Pair({.p = 0.8, .a = 1, .c = 0});
  const auto speed = [&](std::uint64_t seed) {
    return Simulate(pair, SpecMode::kBranch, 5, 2, 1000, seed).tokens_per_s;
  };
  EXPECT_EQ(speed(3), speed(3));
  EXPECT_NE(speed(3), speed(4));
}

TEST(Simulator, TheBestLengthIsThatOfTheFormula) {
  for (const double p : {0.0, 0.5, 0.8, 0.95}) {
    PairModel pair = Pair({.p = p, .a = 1, .c = 0});
    pair.draft_token_s = 0.5;
    const auto sync = [&](int n) {
      return n == 0 ? 0.1 : (pair.phi.Mean(n) + 1) / (0.5 * n + pair.Verify(n + 1));
    };
    double most = 0;
    for (int n = 0; n <= kDraftTokensMax; ++n) most = std::max(most, sync(n));
    EXPECT_GE(sync(BestDraftLength(pair, SpecMode::kSync, 2, kDraftTokensMax)), most * 0.99) << p;
  }
  PairModel slow = Pair({.p = 0.5, .a = 1, .c = 0});
  slow.draft_token_s = 20;
  EXPECT_EQ(BestDraftLength(slow, SpecMode::kSync, 2, kDraftTokensMax), 0);
}

}  // namespace
}  // namespace thermocline::offline
