#include "engine/spec/phi.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/check.h"

namespace thermocline::spec {
namespace {

// Iterations of each fit per outcome. A cause whose weight reached zero would never recover, and
// one with a small weight recovers slowly.
constexpr int kSteps = 6;
constexpr double kWeightMin = 1e-5;
constexpr double kPartOfP[] = {1e-3, 0.45, 0.8, 0.999};

std::size_t At(int i) { return i; }

}  // namespace

double Phi::AtLeast(int k, int n) const {
  if (k > n) return 0;
  return std::clamp(1 - a * (1 - std::pow(p, k)) - k * c, 0.0, 1.0);
}

double Phi::operator()(int k, int n) const { return AtLeast(k, n) - AtLeast(k + 1, n); }

double Phi::Mean(int n) const {
  double mean = 0;
  for (int k = 1; k <= n; ++k) mean += AtLeast(k, n);
  return mean;
}

PhiEstimator::PhiEstimator(const Phi& prior, double weight, double half_life)
    : phi_(prior), decay_(std::exp2(-1 / half_life)) {
  for (int k = 0; k < kPositions; ++k) prior_.refused[At(k)] = weight * prior(k, kPositions);
  prior_.whole[kPositions] = weight * prior(kPositions, kPositions);
  for (int i = 0; i < kFits; ++i) {
    const double p_min = kPartOfP[i], p_max = kPartOfP[i + 1];
    fits_[At(i)] = {.geometric = 0.4,
                    .uniform = 0.2,
                    .none = 0.4,
                    .p = std::clamp(prior.p, p_min, p_max),
                    .p_min = p_min,
                    .p_max = p_max};
  }
}

void PhiEstimator::Add(int k, int n) {
  CHECK(0 <= k && k <= n && n <= kPositions);
  if (n == 0) return;
  for (double& count : seen_.refused) count *= decay_;
  for (double& count : seen_.whole) count *= decay_;
  outcomes_ = outcomes_ * decay_ + 1;
  ++(k < n ? seen_.refused[At(k)] : seen_.whole[At(n)]);
  Fit();
}

void PhiEstimator::Fit() {
  for (int j = 0; j < kPositions; ++j) {
    counts_.refused[At(j)] = prior_.refused[At(j)] + seen_.refused[At(j)];
    counts_.whole[At(j + 1)] = prior_.whole[At(j + 1)] + seen_.whole[At(j + 1)];
  }
  double best = -std::numeric_limits<double>::infinity();
  for (Mixture& fit : fits_) {
    for (int i = 0; i < kSteps; ++i) Step(fit);
    const Phi phi{.p = fit.p,
                  .a = fit.geometric / (1 - std::pow(fit.p, kPositions)),
                  .c = fit.uniform / kPositions};
    const double likelihood = LogLikelihood(phi);
    if (likelihood > best) best = likelihood, phi_ = phi;
  }
}

double PhiEstimator::LogLikelihood(const Phi& phi) const {
  double sum = 0, power = 1;  // p^j
  for (int j = 0; j < kPositions; ++j) {
    sum += counts_.refused[At(j)] * std::log(phi.a * power * (1 - phi.p) + phi.c);
    power *= phi.p;
    sum += counts_.whole[At(j + 1)] * std::log(1 - phi.a * (1 - power) - (j + 1) * phi.c);
  }
  return sum;
}

// Expectation-maximisation: divides the outcomes among the causes by probability, and computes new
// weights and the new p from the shares.
void PhiEstimator::Step(Mixture& m) const {
  std::array<double, kPositions> geometric;  // distribution of the first cause
  double power = 1;                          // p^j
  for (double& g : geometric) g = power, power *= m.p;
  const double inside = 1 - power;  // of an infinite geometric distribution, below kPositions
  for (double& g : geometric) g *= (1 - m.p) / inside;

  const double uniform_each = m.uniform / kPositions;
  double geometric_count = 0, uniform_count = 0, none_count = 0, positions = 0;
  double tail = 0, tail_positions = 0;  // of the first cause: sum of g and of j g beyond j
  for (int j = kPositions - 1; j >= 0; --j) {
    const double beyond = kPositions - 1 - j, g = geometric[At(j)];
    const double whole =
        counts_.whole[At(j + 1)] / (m.geometric * tail + uniform_each * beyond + m.none);
    const double refused = counts_.refused[At(j)] / (m.geometric * g + uniform_each);
    geometric_count += m.geometric * (whole * tail + refused * g);
    positions += m.geometric * (whole * tail_positions + refused * g * j);
    uniform_count += uniform_each * (whole * beyond + refused);
    none_count += m.none * whole;
    tail += g;
    tail_positions += g * j;
  }
  const double all = geometric_count + uniform_count + none_count;
  m.geometric = std::max(kWeightMin, geometric_count / all);
  m.uniform = std::max(kWeightMin, uniform_count / all);
  m.none = std::max(kWeightMin, none_count / all);
  const double sum = m.geometric + m.uniform + m.none;
  m.geometric /= sum;
  m.uniform /= sum;
  m.none /= sum;
  if (geometric_count == 0) return;
  // Outcomes of an infinite geometric distribution that would lie beyond the last position, at 20 +
  // p / (1 - p) each on average.
  const double lost = geometric_count * power / inside;
  const double accepted = positions + lost * (kPositions + m.p / (1 - m.p));
  m.p = std::clamp(accepted / (accepted + geometric_count + lost), m.p_min, m.p_max);
}

}  // namespace thermocline::spec
