// The controller's measurements: step times, and how often drafts are accepted.
#pragma once

#include <array>

#include "engine/spec/draft.h"
#include "engine/spec/phi.h"

namespace thermocline::spec {

// A mean in which older values count less. Thread-compatible, like every class here.
class DecayedMean {
 public:
  // The first values have equal weight, later ones 1 / `memory` each.
  explicit DecayedMean(double initial = 0, double memory = 32) : value_(initial), memory_(memory) {}
  void Add(double value);
  double value() const { return value_; }
  bool known() const { return count_ > 0; }

 private:
  double value_, memory_, count_ = 0;
};

// Estimated time of a target step of T = 1 .. kDraftTokensMax + 1 tokens: a line fitted to all
// measurements, plus each length's deviation from it, weighted more the more often that length was
// measured. Without the line, a length that was slow once would never be tried again. More tokens
// never take less time, so an estimate is at most those of longer steps. Each measurement also
// adjusts the other lengths a little, because a growing context and other processes change all of
// them.
class StepTimes {
 public:
  void Add(int tokens, double seconds);
  // Returns seconds; 0 while nothing is known.
  double operator()(int tokens) const { return estimates_[At(tokens)]; }
  bool known(int tokens) const { return counts_[At(tokens)] > 0; }

 private:
  static std::size_t At(int tokens) { return tokens - 1; }
  struct Line {
    double begin, slope;  // seconds of one token, and of each further
  };
  Line Fit() const;
  void Estimate();
  std::array<double, kDraftTokensMax + 1> seconds_ = {}, counts_ = {}, estimates_ = {};
};

// The probability that a proposal is accepted, given that those before it were: by its confidence
// where measured often enough, otherwise by its position (phi).
class Acceptances {
 public:
  void Add(int confidence, bool accepted);
  double operator()(int confidence, int place, const Phi& phi) const;

 private:
  std::array<double, kConfidenceClasses> accepted_ = {}, refused_ = {};
};

// The probability that the token after the accepted ones is the draft's first, second, ... guess.
class GuessHits {
 public:
  explicit GuessHits(double first);
  // rank: 0 = none of the guesses was right.
  void Add(int rank);
  // rank >= 1.
  double operator()(int rank) const;

 private:
  std::array<double, kAlternatesMax + 1> hits_ = {};  // by rank - 1
  double total_ = 0;
};

}  // namespace thermocline::spec
