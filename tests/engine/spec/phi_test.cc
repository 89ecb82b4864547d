// phi is a distribution for any parameters, and its fit is optimal.
#include "engine/spec/phi.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

namespace thermocline::spec {
namespace {

struct Outcome {
  int k, n;
};

// Outcomes of `phi`, with drafts of lengths in [n_min, n_max].
std::vector<Outcome> Sample(const Phi& phi, int count, int n_min, int n_max, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<Outcome> out;
  for (int i = 0; i < count; ++i) {
    const int n = n_min + static_cast<int>(random() % static_cast<unsigned>(n_max - n_min + 1));
    double u = static_cast<double>(random() >> 11) * 0x1p-53;
    int k = 0;
    while (k < n && u >= phi(k, n)) u -= phi(k++, n);
    out.push_back({k, n});
  }
  return out;
}

// Outcomes counted by [n][k].
struct Counts {
  explicit Counts(const std::vector<Outcome>& outcomes) {
    for (const auto& [k, n] : outcomes)
      ++count[static_cast<std::size_t>(n)][static_cast<std::size_t>(k)];
  }
  double LogLikelihood(const Phi& phi) const {
    double sum = 0;
    for (std::size_t n = 1; n < count.size(); ++n) {
      for (std::size_t k = 0; k <= n; ++k) {
        if (count[n][k] > 0)
          sum += count[n][k] * std::log(phi(static_cast<int>(k), static_cast<int>(n)));
      }
    }
    return sum;
  }
  std::array<std::array<double, 16>, 16> count = {};
};

// The fit of equally weighted outcomes, with a prior of negligible weight. More passes give the
// same fit with more steps.
Phi FitAll(const std::vector<Outcome>& outcomes, int passes = 1) {
  PhiEstimator estimator({.p = 0.5, .a = 0.8, .c = 0.01}, 1e-3, 1e12);
  for (int pass = 0; pass < passes; ++pass) {
    for (const auto& [k, n] : outcomes) estimator.Add(k, n);
  }
  return estimator.phi();
}

void ExpectDistributions(const Phi& phi) {
  for (int n = 0; n <= kDraftTokensMax; ++n) {
    double sum = 0, mean = 0;
    for (int k = 0; k <= n; ++k) {
      const double share = phi(k, n);
      ASSERT_GE(share, 0) << "k " << k << " n " << n;
      double beyond = 0;
      for (int i = k; i <= n; ++i) beyond += phi(i, n);
      ASSERT_NEAR(phi.AtLeast(k, n), beyond, 1e-12);
      sum += share;
      mean += k * share;
    }
    ASSERT_NEAR(sum, 1, 1e-12) << "p " << phi.p << " a " << phi.a << " c " << phi.c << " n " << n;
    ASSERT_NEAR(phi.Mean(n), mean, 1e-12);
  }
}

const std::vector<Phi> kTruths = {{.p = 0.7, .a = 1, .c = 0},
                                  {.p = 0.8, .a = 0.6, .c = 0.01},
                                  {.p = 0.3, .a = 0.5, .c = 0.02},
                                  {.p = 0.9, .a = 1.1, .c = 0.001},
                                  {.p = 0.5, .a = 0.2, .c = 0.001}};

TEST(Phi, IsTheFormula) {
  const Phi phi{.p = 0.8, .a = 0.6, .c = 0.01};
  for (int k = 0; k < 8; ++k) EXPECT_NEAR(phi(k, 8), 0.6 * std::pow(0.8, k) * 0.2 + 0.01, 1e-15);
  const Phi independent{.p = 0.8, .a = 1, .c = 0};
  for (int n = 0; n <= kDraftTokensMax; ++n) {
    EXPECT_NEAR(independent(n, n), std::pow(0.8, n), 1e-15);
    EXPECT_NEAR(independent.Mean(n) + 1, (1 - std::pow(0.8, n + 1)) / 0.2, 1e-12);  // Leviathan
  }
}

TEST(Phi, IsADistributionForAnyParameters) {
  for (const double p : {0.0, 1e-9, 0.3, 0.999999, 1.0}) {
    for (const double a : {0.0, 0.5, 1.0, 3.0, 1e9}) {
      for (const double c : {0.0, 0.01, 1.0 / kDraftTokensMax, 0.5, 1e9})
        ExpectDistributions({p, a, c});
    }
  }
}

// Eq. 11 of the paper: the mass at n is printed as 1 - p + p^n. With Eq. 10 for the others that
// sums to 2 - p.
TEST(Phi, ThePapersMassAtTheEndIsNoDistribution) {
  for (const double p : {0.2, 0.7, 0.95}) {
    const int n = 10;
    double sum = 1 - p + std::pow(p, n);
    for (int k = 0; k < n; ++k) sum += std::pow(p, k) * (1 - p);
    EXPECT_NEAR(sum, 2 - p, 1e-12);
    EXPECT_GT(sum, 1.04);
  }
}

// Even normalized, the printed laws do not describe independent tokens, and the fit here has a
// higher likelihood than either of them with its best p.
TEST(Phi, TheFitBeatsThePrintedLaws) {
  const Phi truth{.p = 0.8, .a = 0.6, .c = 0.01};
  const Phi fit = FitAll(Sample(truth, 20000, 10, 10, 5));
  const auto fresh = Sample(truth, 20000, 10, 10, 6);
  double printed = -1e300, independent = -1e300;
  for (double p = 0.01; p < 1; p += 0.01) {
    double sum = 0;
    for (const auto& [k, n] : fresh)
      sum += std::log((k < n ? std::pow(p, k) * (1 - p) : 1 - p + std::pow(p, n)) / (2 - p));
    printed = std::max(printed, sum);
    independent = std::max(independent, Counts(fresh).LogLikelihood({.p = p, .a = 1, .c = 0}));
  }
  const double ours = Counts(fresh).LogLikelihood(fit);
  EXPECT_GT(ours, printed + 60);
  EXPECT_GT(ours, independent + 200);
}

TEST(PhiEstimator, BeginsWithThePrior) {
  for (const Phi& prior : kTruths) {
    PhiEstimator estimator(prior);
    EXPECT_EQ(estimator.phi().p, prior.p);
    estimator.Add(0, 0);
    EXPECT_EQ(estimator.outcomes(), 0);
    // A prior of great weight stays: it has the maximum likelihood for its own counts.
    PhiEstimator strong(prior, 1e9);
    for (int i = 0; i < 1000; ++i) strong.Add(0, 1);
    for (int k = 0; k <= kDraftTokensMax; ++k)
      EXPECT_NEAR(strong.phi()(k, kDraftTokensMax), prior(k, kDraftTokensMax), 1e-3) << k;
  }
}

TEST(PhiEstimator, IsValidWhateverHappens) {
  for (const Phi& prior : {Phi{}, Phi{.p = 0, .a = 0, .c = 0}, Phi{.p = 1, .a = 1, .c = 0},
                           Phi{.p = 0.5, .a = 9, .c = 9}, kTruths[1]}) {
    for (const int n : {1, 2, 8, 15}) {
      for (const int what : {0, 1, 2, 3}) {
        PhiEstimator estimator(prior);
        for (int i = 0; i < 500; ++i) {
          const int k = what == 0 ? 0 : what == 1 ? n : what == 2 ? n - 1 : (i * 7) % (n + 1);
          estimator.Add(k, n);
          const Phi& phi = estimator.phi();
          ASSERT_TRUE(phi.p >= 0 && phi.p < 1 && phi.a >= 0 && phi.c >= 0) << phi.p;
          ASSERT_TRUE(std::isfinite(phi.a) && std::isfinite(phi.c));
          if (i % 50 == 0) ExpectDistributions(phi);
        }
        if (what == 0) {
          EXPECT_GT(estimator.phi()(0, n), 0.9);
        }
        if (what == 1) {
          EXPECT_GT(estimator.phi()(n, n), 0.85);
        }
      }
    }
  }
}

// A share s of N outcomes has the standard error sqrt(s (1 - s) / N). The bounds are six of them,
// and twelve for mixed lengths.
TEST(PhiEstimator, RecoversWhatWasSampled) {
  constexpr int kCount = 20000;
  for (const Phi& truth : kTruths) {
    const Phi one_length = FitAll(Sample(truth, kCount, 12, 12, 1));
    const Phi mixed = FitAll(Sample(truth, kCount, 3, 15, 2));
    for (int k = 0; k <= 12; ++k) {
      const double share = truth(k, 12), error = std::sqrt(share * (1 - share) / kCount);
      EXPECT_NEAR(one_length(k, 12), share, 6 * error + 1e-4) << k;
      EXPECT_NEAR(mixed(k, 12), share, 12 * error + 1e-4) << k;  // fewer reach so far
    }
  }
}

TEST(PhiEstimator, IsAtLeastAsLikelyAsAGridSearch) {
  for (const Phi& truth : kTruths) {
    for (const int count : {30, 300, 3000}) {
      const auto outcomes = Sample(truth, count, 4, 12, 3);
      const Counts counts(outcomes);
      double best = -1e300;
      for (double p = 0.025; p < 1; p += 0.025) {
        for (double share = 0.025; share < 1;
             share += 0.025) {  // a (1 - p^n) + n c, for the longest draft
          for (double floor = 0; floor <= share; floor += 0.025) {
            constexpr int kMost = kDraftTokensMax;
            const Phi phi{p, (share - floor) / (1 - std::pow(p, kMost)), floor / kMost};
            best = std::max(best, counts.LogLikelihood(phi));
          }
        }
      }
      EXPECT_GE(counts.LogLikelihood(FitAll(outcomes, 20)), best - 0.005)
          << "p " << truth.p << " count " << count;
      EXPECT_GE(counts.LogLikelihood(FitAll(outcomes)), best - 0.1);
    }
  }
}

// A half-life of 64 forgets 95% in five half-lives.
TEST(PhiEstimator, FollowsAChange) {
  const Phi before{.p = 0.9, .a = 1, .c = 0}, after{.p = 0.3, .a = 1, .c = 0};
  PhiEstimator estimator({}, 4, 64);
  for (const auto& [k, n] : Sample(before, 1000, 8, 8, 7)) estimator.Add(k, n);
  EXPECT_NEAR(estimator.phi().Mean(8), before.Mean(8), 0.8);
  for (const auto& [k, n] : Sample(after, 320, 8, 8, 8)) estimator.Add(k, n);
  EXPECT_NEAR(estimator.phi().Mean(8), after.Mean(8), 0.45);
  EXPECT_NEAR(estimator.outcomes(), 1 / (1 - std::exp2(-1.0 / 64)), 0.5);
}

}  // namespace
}  // namespace thermocline::spec
