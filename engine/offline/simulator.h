// A discrete-event model of one draft and one target, to predict the gain of a pair on a machine.
//
// A round: the target verifies the n tokens of a draft, and the token before them, in Verify(n + 1)
// seconds; k are accepted (phi), and one more token follows. The draft's work by mode:
//   off         none: Verify(1) per token. The same applies to every mode with n = 0
//   sync        idle during verification; then it makes the next n tokens, and the target waits
//   branch      it drafts after outcomes (k, token), the likeliest first, four in common steps,
//   each n
//               tokens deep before the next four. If the outcome is among those begun, the target
//               waits for the rest of its n tokens; otherwise a new draft is made, as in sync
//   exhaustive  it drafts after every k in 0..n with `width` tokens each, up to 16 branches in
//   common
//               steps, and the target waits for all of them; a new draft is made if the token is
//               none of these
// Without common steps (path_share 1) it drafts one branch after the other. The target waits for
// the draft's current step. After n accepted tokens the first guess is the draft's own next token,
// which takes the time of one more token; after fewer, the guesses are the draft's other tokens at
// that position, known since it was drafted. While both work, each is slowed down by its factor.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/spec/phi.h"

namespace thermocline::offline {

struct PairModel {
  double draft_token_s = 0;  // time of one drafted token, >= 0
  // The time that each further branch adds to a common step, relative to a step with one branch: 0
  // = none (the draft's weights are read once for all branches), 1 = as much as drafting the
  // branches one after the other.
  double path_share = 1;
  std::vector<double> verify_s = {};  // [tokens - 1] time of a target's step of that many tokens, >
                                      // 0; at least one entry; extrapolated by the last difference
  spec::Phi phi = {};
  // The probabilities that the token after k < n accepted ones is the draft's first, second, ...
  // other token; their sum is at most 1. After n accepted ones, the same for a token that is not
  // the draft's next.
  std::vector<double> correction_hits = {0.4, 0.15};
  double bonus_hit = 0.7;  // probability that the token after n accepted ones is the draft's next
  // Slowdown while both run: 1 = separate resources, 2 = one core for both. > 0
  double draft_slowdown = 1, verify_slowdown = 1;
  double round_overhead_s = 0;  // per round with a draft: judging and hand-over

  double Verify(int tokens) const;
  // The time that a further token adds to the target's steps, relative to a step of 1 token, from 0
  // to 1. A draft of the same kind on the same processor has about this path_share.
  double VerifyShare() const;
  // The probability of guess 0, 1, ... after k of n accepted tokens, given k.
  double GuessHit(int guess, int k, int n) const;
};

struct SimulatedRun {
  double tokens_per_s = 0;
  double accepted_mean = 0;    // accepted tokens per draft
  double branch_hit_rate = 0;  // share of rounds in which the outcome's branch was begun
  double wait_share = 0;       // share of the time in which the target waits for a draft
  double wasted_share = 0;     // share of the drafted tokens rejected, or on another branch
};

// Simulates at least `tokens` tokens in `mode` (not auto) with drafts of n in [0, kDraftTokensMax]
// tokens and `width` >= 1 guesses after each. Deterministic.
SimulatedRun Simulate(const PairModel& pair, SpecMode mode, int n, int width, std::int64_t tokens,
                      std::uint64_t seed = 1);

// The n in [0, n_max] with the most tokens per second.
int BestDraftLength(const PairModel& pair, SpecMode mode, int width, int n_max);

}  // namespace thermocline::offline
