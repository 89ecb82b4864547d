// The controller's measurements: times of steps, and how often drafts are right.
#pragma once

#include <array>

#include "engine/spec/draft.h"
#include "engine/spec/phi.h"

namespace thermocline::spec {

// A mean in which older values count less. Thread-compatible, as all here.
class DecayedMean {
 public:
  // The first values count alike, later ones 1 / `memory` each.
  explicit DecayedMean(double initial = 0, double memory = 32) : value_(initial), memory_(memory) {}
  void Add(double value);
  double value() const { return value_; }
  bool known() const { return count_ > 0; }

 private:
  double value_, memory_, count_ = 0;
};

// Time of a target's step by its tokens, T = 1 .. kDraftTokensMax + 1: a line through all that was
// measured, and what a length adds to it as far as that was seen often. A length that was unlucky
// once would otherwise never be tried again; and as more tokens never take less time, what a long
// step took bounds the shorter ones. A step says a little about the others, too: the context grows,
// other processes come and go.
class StepTimes {
 public:
  void Add(int tokens, double seconds);
  // Seconds; 0 while nothing is known.
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

// The probability that a proposal is accepted, given that those before it were: by its confidence,
// as far as that was seen, else by its place (phi).
class Acceptances {
 public:
  void Add(int confidence, bool accepted);
  double operator()(int confidence, int place, const Phi& phi) const;

 private:
  std::array<double, kConfidenceClasses> accepted_ = {}, refused_ = {};
};

// The probability that the token behind an accepted length is the draft's first, second, ... guess
// for it.
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
