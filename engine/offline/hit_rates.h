// The share of rounds whose outcome is among the drafted branches, to compare policies on recorded
// rounds.
//
// The outcome of a round is (k, rank): k of n tokens are accepted, and the next token is the
// draft's guess of that rank. A policy ranks all outcomes before the round; with w branches a round
// is a hit if its outcome is among the first w.
//   ours        P(k) from the confidence of each token: the accepted share of its class, learned
//               from earlier rounds and shrunk towards phi's while data is scarce; P(rank) is
//               learned
//   phi         ours without confidences: phi fitted online
//   paper       lengths by phi, like the above. It continues after a length with the draft's own
//               token, which the target has just rejected: right only after k = n. The paper draws
//               a length at random; here it gets the likeliest, which is better. Source: Duan et
//               al. 2024
//   oracle      knows phi: the shares of (k, rank) among all rounds of the trace with this n
//   hindsight   ours with the shares of the whole trace from the start: an upper bound for
//               confidences if tokens are accepted independently, given their classes
#pragma once

#include <array>
#include <span>
#include <vector>

#include "engine/spec/draft.h"

namespace thermocline::offline {

struct RecordedRound {
  int n = 0;  // tokens drafted, [1, kDraftTokensMax]
  int k = 0;  // accepted
  // The rank of the next token among the draft's guesses there, from 1; 0: it is none of them; -1:
  // there were no guesses, or it is unknown. After k < n the guesses are the draft's other tokens;
  // after n its next token, then the others.
  int rank = 0;                      // [-1, kRanksMax]
  std::vector<int> confidence = {};  // classes of the n tokens, and of the next if known; or empty
};

inline constexpr int kRanksMax = spec::kAlternatesMax + 1;
inline constexpr int kBranchesMax = 16;

enum class HitPolicy { kOurs, kPhi, kPaper, kOracle, kHindsight };
inline constexpr HitPolicy kHitPolicies[] = {HitPolicy::kOurs, HitPolicy::kPhi, HitPolicy::kPaper,
                                             HitPolicy::kOracle, HitPolicy::kHindsight};
const char* HitPolicyName(HitPolicy policy);

// [policy][w - 1]: rounds that hit with w branches. Rounds of rank -1 never hit, and are used only
// to learn lengths.
using HitCounts = std::array<std::array<int, kBranchesMax>, std::size(kHitPolicies)>;

// Requires: rounds as above.
HitCounts CountHits(std::span<const RecordedRound> rounds);

}  // namespace thermocline::offline
