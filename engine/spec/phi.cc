#include "engine/spec/phi.h"

#include <algorithm>
#include <cmath>

namespace thermocline::spec {

double Phi::operator()(int k, int n) const {
  if (k < n) return a * std::pow(p, k) * (1 - p) + c;
  return AtLeast(n, n);
}
double Phi::AtLeast(int k, int n) const {
  double below = 0;
  for (int i = 0; i < std::min(k, n); ++i) below += a * std::pow(p, i) * (1 - p) + c;
  return std::max(0.0, 1 - below);
}
double Phi::Mean(int n) const {
  double sum = 0;
  for (int k = 1; k <= n; ++k) sum += AtLeast(k, n);
  return sum;
}
PhiEstimator::PhiEstimator(const Phi& prior, double weight, double half_life)
    : prior_(prior), phi_(prior), weight_(weight), decay_(std::exp2(-1 / half_life)) {}
void PhiEstimator::Add(int k, int n) {
  for (double& x : accepted_) x *= decay_;
  for (double& x : refused_) x *= decay_;
  accepted_[0] += k;
  if (k < n) refused_[0] += 1;
  Fit();
}
void PhiEstimator::Fit() {
  phi_.p = (accepted_[0] + prior_.p * weight_) / (accepted_[0] + refused_[0] + weight_);
}
double PhiEstimator::outcomes() const { return refused_[0]; }

}  // namespace thermocline::spec
