#include "engine/spec/estimates.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace thermocline::spec {

void DecayedMean::Add(double value) {
  count_ = std::min(count_ + 1, memory_);
  value_ += (value - value_) / count_;
}

void StepTimes::Add(int tokens, double seconds) {
  constexpr double kMemory = 24, kElsewhere = 0.25;
  double& count = counts_[At(tokens)];
  if (count == 0) {
    seconds_[At(tokens)] = seconds;
    count = 1;
    return Estimate();
  }
  // Limits the weight of one step that the operating system delayed.
  const double ratio = std::clamp(seconds / seconds_[At(tokens)], 0.5, 2.0);
  count = std::min(count + 1, kMemory);
  for (int t = 1; t <= kDraftTokensMax + 1; ++t)
    seconds_[At(t)] *= 1 + (ratio - 1) / count * (t == tokens ? 1 : kElsewhere);
  Estimate();
}

void StepTimes::Estimate() {
  constexpr double kBelieved = 8;  // steps after which a length's own mean dominates
  const Line line = Fit();
  // A step of several tokens takes no longer than as many single steps: where the fitted line falls
  // below that bound, the measured times decide.
  double one = std::numeric_limits<double>::infinity();
  for (int t = 1; t <= kDraftTokensMax + 1; ++t) {
    if (counts_[At(t)] > 0) one = std::min(one, seconds_[At(t)] / t);
  }
  double least = std::numeric_limits<double>::infinity();
  for (int t = kDraftTokensMax + 1; t >= 1; --t) {
    const double count = counts_[At(t)], fit = line.begin + line.slope * (t - 1);
    const double value = fit + (seconds_[At(t)] - fit) * count / (count + kBelieved);
    estimates_[At(t)] = least = std::min(least, std::max(value, one));
  }
}

// The line through all measured lengths, by weighted least squares.
StepTimes::Line StepTimes::Fit() const {
  constexpr double kSlopeUnknown = 0.1;  // of a step of one token
  double weight = 0, t_mean = 0, s_mean = 0;
  for (int t = 1; t <= kDraftTokensMax + 1; ++t) {
    const double w = counts_[At(t)];
    weight += w;
    t_mean += w * (t - 1);
    s_mean += w * seconds_[At(t)];
  }
  t_mean /= weight;
  s_mean /= weight;
  double across = 0, along = 0;
  for (int t = 1; t <= kDraftTokensMax + 1; ++t) {
    const double w = counts_[At(t)], dt = t - 1 - t_mean;
    across += w * dt * (seconds_[At(t)] - s_mean);
    along += w * dt * dt;
  }
  const double slope =
      along > 0 ? std::max(0.0, across / along) : kSlopeUnknown * s_mean / (1 + t_mean);
  return {s_mean - slope * t_mean, slope};
}

void Acceptances::Add(int confidence, bool accepted) {
  constexpr double kHalfLife = 256;
  static const double decay = std::exp2(-1 / kHalfLife);
  const std::size_t at = confidence;
  accepted_[at] *= decay;
  refused_[at] *= decay;
  (accepted ? accepted_ : refused_)[at] += 1;
}

double Acceptances::operator()(int confidence, int place, const Phi& phi) const {
  constexpr double kPrior = 4;  // outcomes that phi counts for
  const std::size_t at = confidence;
  const double before = phi.AtLeast(place, kDraftTokensMax),
               after = phi.AtLeast(place + 1, kDraftTokensMax),
               hazard = before > 0 ? after / before : 0;
  return (accepted_[at] + kPrior * hazard) / (accepted_[at] + refused_[at] + kPrior);
}

GuessHits::GuessHits(double first) {
  constexpr double kPrior = 4;
  total_ = kPrior;
  double rest = kPrior * first;
  for (double& hits : hits_) {
    hits = rest;
    rest *= 0.35;
  }
}

void GuessHits::Add(int rank) {
  constexpr double kHalfLife = 256;
  static const double decay = std::exp2(-1 / kHalfLife);
  total_ = total_ * decay + 1;
  for (double& hits : hits_) hits *= decay;
  if (rank > 0) hits_[rank - 1] += 1;
}

double GuessHits::operator()(int rank) const { return hits_[rank - 1] / total_; }

}  // namespace thermocline::spec
