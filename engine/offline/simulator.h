// A discrete-event model of one draft and one target: what a pair would gain on a machine.
//
// A round: the target verifies the n tokens of a draft, and the one before them, in
// Verify(n + 1) seconds; k are accepted (phi), and a token follows them. What the draft does:
//   off         nothing: Verify(1) a token. So does every mode with n = 0
//   sync        nothing meanwhile; then it makes the next n tokens, and the target waits
//   branch      it drafts behind outcomes (k, token), the likeliest first, four in common steps,
//               each n tokens deep before the next four. If the outcome is among those begun, the
//               target waits for what lacks of its n tokens; else a new draft is made, as in sync
//   exhaustive  it drafts behind every k in 0..n with `width` tokens each, up to 16 branches in
//               common steps, and the target waits for all of them; a new draft is made if the
//               token is another
// Without common steps (path_share 1) it drafts one branch after the other. The target waits for
// the step that the draft is at. Behind n accepted tokens the first guess is the draft's own next
// token, which takes a token's time of its own; behind fewer, the guesses are the draft's other
// tokens at that place, known since it was drafted. While both work, each is slower by its factor.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/spec/phi.h"

namespace thermocline::offline {

struct PairModel {
  double draft_token_s = 0;  // time of one drafted token, >= 0
  // The time that each further branch of a common step adds, as a share of the step: 0 = nothing
  // (the draft's weights are read once for all), 1 = as if they were drafted one after the other.
  double path_share = 1;
  std::vector<double> verify_s = {};  // [tokens - 1] time of a target's step of so many tokens, >
                                      // 0; at least one; beyond the last, by its last difference
  spec::Phi phi = {};
  // The probabilities that the token behind k < n accepted ones is the draft's first, second, ...
  // other token; sum at most 1. The same behind n of them, if it is not the draft's next.
  std::vector<double> correction_hits = {0.4, 0.15};
  double bonus_hit = 0.7;  // that the token behind n accepted ones is the draft's next
  // Slower by this factor while both run: 1 = separate resources, 2 = one core for both. > 0
  double draft_slowdown = 1, verify_slowdown = 1;
  double round_overhead_s = 0;  // judging, handing over; of a round with a draft

  double Verify(int tokens) const;
  // The share in the target's own steps that a further token adds to a step of 1, from 0 to 1. A
  // draft of the same kind on the same processor has about that path_share.
  double VerifyShare() const;
  // The probability of guess 0, 1, ... behind k of n accepted tokens, given k.
  double GuessHit(int guess, int k, int n) const;
};

struct SimulatedRun {
  double tokens_per_s = 0;
  double accepted_mean = 0;    // tokens of a draft
  double branch_hit_rate = 0;  // of the rounds: the outcome's branch was begun
  double wait_share = 0;       // of the time the target waits for a draft
  double wasted_share = 0;     // of the drafted tokens: refused, or of a branch that did not come
};

// At least `tokens` tokens in `mode` (not auto) with drafts of n in [0, kDraftTokensMax] tokens and
// `width` >= 1 guesses behind each. The same for the same arguments.
SimulatedRun Simulate(const PairModel& pair, SpecMode mode, int n, int width, std::int64_t tokens,
                      std::uint64_t seed = 1);

// The n in [0, n_max] with the most tokens per second.
int BestDraftLength(const PairModel& pair, SpecMode mode, int width, int n_max);

}  // namespace thermocline::offline
