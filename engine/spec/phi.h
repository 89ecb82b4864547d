// phi: the distribution of the number of accepted draft tokens.
//
//   phi(k) = a p^k (1 - p) + c   for 0 <= k < n,   phi(n) = 1 - sum of the others
// with a truncated geometric part, a floor c, and the rest of the mass at n. With a = 1, c = 0 it
// is that of independent tokens: phi(n) = p^n. Source: Duan et al. 2024, Eq. 12 (its Eq. 11 should
// read p^n).
//
// That the first k are accepted does not depend on n: AtLeast(k) = 1 - a (1 - p^k) - k c. So drafts
// of different lengths tell of the same p, a and c. Where parameters would make AtLeast negative it
// is taken as zero: phi is a distribution for any p in [0, 1], a >= 0 and c >= 0.
#pragma once

#include <array>

#include "engine/api/speculation.h"

namespace thermocline::spec {

struct Phi {
  double p = 0.7;  // [0, 1]
  double a = 1;    // >= 0
  double c = 0;    // >= 0

  // The probability of k accepted tokens out of n drafted. 0 <= k <= n <= kDraftTokensMax.
  double operator()(int k, int n) const;
  // E[k], and the probability that the first k are accepted (k <= n): sum of phi(k..n).
  double Mean(int n) const;
  double AtLeast(int k, int n) const;
};

// Fits phi to the outcomes seen, by maximum likelihood, with older outcomes counting less. One per
// request, beginning with the pair's prior. Thread-compatible; allocates nothing; an Add takes
// about 3 us on a Xeon.
//
// The likelihood is that of three causes mixed, for the first refused position j of a draft without
// end, seen up to the draft's length: geometric below kDraftTokensMax (weight a (1 - p^20)), any
// position alike (20 c), none (the rest). Every set of weights that sums to 1 is a valid phi, so
// expectation-maximisation needs no constraints, and no step of it makes a fit worse.
// Source: Dempster, Laird and Rubin 1977. It climbs one hill, and there may be others (few small
// p with a floor look like one large p): three fits go on, each with p in its own part of [0, 1],
// and phi is the likeliest.
class PhiEstimator {
 public:
  // `prior` counts as `weight` > 0 outcomes of full length, which do not age; an outcome loses half
  // its weight in `half_life` further.
  explicit PhiEstimator(const Phi& prior, double weight = 4, double half_life = 64);
  // Records that k of n tokens were accepted. n = 0 is ignored.
  void Add(int k, int n);
  // Returns the current fit, which is the prior before the first outcome.
  const Phi& phi() const { return phi_; }
  double outcomes() const { return outcomes_; }  // decayed number of them

 private:
  static constexpr int kPositions = kDraftTokensMax;
  // Outcomes by their end: rejected at position j, or accepted to the end, k = n.
  struct Counts {
    std::array<double, kPositions> refused = {};
    std::array<double, kPositions + 1> whole = {};
  };
  struct Mixture {
    double geometric = 0, uniform = 0, none = 0;  // weights of the causes, > 0; sum 1
    double p = 0, p_min = 0, p_max = 0;
  };
  static constexpr int kFits = 3;
  void Fit();
  void Step(Mixture& mixture) const;
  double LogLikelihood(const Phi& phi) const;

  Phi phi_;
  // The decaying counts, and their sum with the prior's.
  Counts seen_, counts_;
  Counts prior_;
  double decay_;
  double outcomes_ = 0;
  std::array<Mixture, kFits> fits_;
};

}  // namespace thermocline::spec
