// phi: how many tokens of a draft are accepted.
//
//   phi(k) = a p^k (1 - p) + c   for 0 <= k < n,   phi(n) = 1 - sum of the others
// with a truncated geometric part, a floor c, and the rest of the mass at n. With a = 1, c = 0 it
// is that of independent tokens: phi(n) = p^n. Source: Duan et al. 2024, Eq. 12 (its Eq. 11 should
// read p^n).
#pragma once

#include <array>
#include <span>

#include "engine/speculation.h"

namespace thermocline::spec {

struct Phi {
  double p = 0.7;  // [0, 1)
  double a = 1;    // >= 0
  double c = 0;    // >= 0

  // Of k accepted tokens out of n drafted. 0 <= k <= n <= kDraftTokensMax.
  double operator()(int k, int n) const;
  // E[k], and that the first k are accepted (k <= n): sum of phi(k..n).
  double Mean(int n) const;
  double AtLeast(int k, int n) const;
};

// Fits phi to what was seen, by maximum likelihood, with older outcomes counting less. One per
// request, beginning with the pair's prior. Thread-compatible; allocates nothing.
class PhiEstimator {
 public:
  // `prior` counts as `weight` outcomes; an outcome loses half its weight in `half_life` further.
  explicit PhiEstimator(const Phi& prior, double weight = 4, double half_life = 64);
  // k of n tokens were accepted.
  void Add(int k, int n);
  // The present fit.
  const Phi& phi() const { return phi_; }
  double outcomes() const;  // decayed number of them

 private:
  void Fit();

  Phi prior_, phi_;
  double weight_, decay_;
  // Decayed counts: token at position k was accepted, and refused, after all before it were.
  std::array<double, kDraftTokensMax> accepted_ = {}, refused_ = {};
};

}  // namespace thermocline::spec
