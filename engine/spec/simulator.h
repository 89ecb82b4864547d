// A discrete-event model of one draft and one target: what a pair would gain on a machine.
//
// Rounds follow each other as in decoder.h: the draft makes n tokens of t_draft each, the target
// verifies them in t_verify(n + 1), k are accepted (phi). In mode branch the draft works during the
// verification on outcomes (k, token) in the order of their probability; if the outcome is among
// them, the next draft is there (or as much of it as was made), else it is made after it. Times of
// draft and target may slow each other down where they share cores (`slowdown`).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/spec/phi.h"

namespace thermocline::spec {

struct PairModel {
  double draft_token_s = 0;      // time of one drafted token
  std::vector<double> verify_s;  // [tokens - 1] time of a target's step of so many tokens, >= 1
                                 // entry; beyond the last, by its last difference
  Phi phi;
  // That the token behind an accepted length is the draft's first, second, ... guess, given that
  // length; [width]. Behind a refused token the guesses are the draft's other tokens.
  std::vector<double> correction_hits = {0.4, 0.15};
  double bonus_hit = 0.7;  // the same behind a draft that was accepted whole: its next token
  // Both run slower by this factor while they run at the same time: 1 = separate resources, 2 = one
  // core for both.
  double draft_slowdown = 1, verify_slowdown = 1;
  double round_overhead_s = 0;  // judging, handing over

  double Verify(int tokens) const;
};

struct SimulatedRun {
  double tokens_per_s = 0;
  double accepted_mean = 0;  // tokens of a draft
  double branch_hit_rate = 0;
  double wait_share = 0;    // of the time the target waits for a draft
  double wasted_share = 0;  // of the drafted tokens
};

// `tokens` tokens in `mode` (not auto) with drafts of `n`, `width` tokens guessed at each end.
SimulatedRun Simulate(const PairModel& pair, SpecMode mode, int n, int width, int tokens,
                      std::uint64_t seed = 1);

// The n in [0, n_max] with the most tokens per second.
int BestDraftLength(const PairModel& pair, SpecMode mode, int width, int n_max);

}  // namespace thermocline::spec
