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
  // One step that was put aside by the system must not count for many.
  const double ratio = std::clamp(seconds / seconds_[At(tokens)], 0.5, 2.0);
  count = std::min(count + 1, kMemory);
  for (int t = 1; t <= kDraftTokensMax + 1; ++t)
    seconds_[At(t)] *= 1 + (ratio - 1) / count * (t == tokens ? 1 : kElsewhere);
  Estimate();
}

void StepTimes::Estimate() {
  double least = std::numeric_limits<double>::infinity();
  for (int t = kDraftTokensMax + 1; t >= 1; --t)
    estimates_[At(t)] = least = std::min(least, Interpolated(t));
}

double StepTimes::Interpolated(int tokens) const {
  if (known(tokens)) return seconds_[At(tokens)];
  int below = tokens, above = tokens;
  while (below > 0 && !known(below)) --below;
  while (above <= kDraftTokensMax + 1 && !known(above)) ++above;
  const bool has_above = above <= kDraftTokensMax + 1;
  if (below == 0) return has_above ? seconds_[At(above)] : 0;
  if (has_above) {
    const double share = static_cast<double>(tokens - below) / (above - below);
    return seconds_[At(below)] + share * (seconds_[At(above)] - seconds_[At(below)]);
  }
  int before = below - 1;  // on as from the one before
  while (before > 0 && !known(before)) --before;
  const double slope =
      before > 0 ? std::max(0.0, seconds_[At(below)] - seconds_[At(before)]) / (below - before)
                 : 0.1 * seconds_[At(below)];
  return seconds_[At(below)] + slope * (tokens - below);
}

void Acceptances::Add(int confidence, bool accepted) {
  constexpr double kHalfLife = 256;
  static const double decay = std::exp2(-1 / kHalfLife);
  const auto at = static_cast<std::size_t>(confidence);
  accepted_[at] *= decay;
  refused_[at] *= decay;
  (accepted ? accepted_ : refused_)[at] += 1;
}

double Acceptances::operator()(int confidence, int place, const Phi& phi) const {
  constexpr double kPrior = 4;  // outcomes that phi counts for
  const auto at = static_cast<std::size_t>(confidence);
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
  if (rank > 0) hits_[static_cast<std::size_t>(rank - 1)] += 1;
}

double GuessHits::operator()(int rank) const {
  return hits_[static_cast<std::size_t>(rank - 1)] / total_;
}

}  // namespace thermocline::spec
