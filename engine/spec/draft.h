// Tokens proposed to follow a sequence.
#pragma once

#include <array>
#include <vector>

#include "engine/api/speculation.h"
#include "engine/sampling/distribution.h"

namespace thermocline::spec {

inline constexpr int kAlternatesMax = kDraftWidthMax;
// Proposals of a draft: the verified tokens and the one after them.
inline constexpr int kProposalsMax = kDraftTokensMax + 1;

// A source's confidence in a proposal, in classes whose acceptance is measured: 0 is the least.
inline constexpr int kConfidenceClasses = 12;

struct Proposal {
  int token = -1;
  int confidence = 0;  // [0, kConfidenceClasses)
  // The alternatives to the token, likeliest first.
  std::array<int, kAlternatesMax> alternates = {};
  int num_alternates = 0;
  // The distribution that the token was drawn from, for rejection sampling; empty: the token alone.
  sampling::Distribution distribution;
};

// Fixed storage: nothing allocates once the distributions have been reserved.
struct Draft {
  std::array<Proposal, kProposalsMax> proposals;
  int size = 0;

  Proposal& operator[](int i) { return proposals[i]; }
  const Proposal& operator[](int i) const { return proposals[i]; }
  void Clear() { size = 0; }
};

}  // namespace thermocline::spec
