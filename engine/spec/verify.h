// Judges a proposed token by the target's distribution.
//
// Both rules give tokens of the target's distribution p, whatever the draft's q is:
//   same text   the token is the target's own draw, Pick(p); a proposal x is accepted if it is that
//               token. A seed gives the text of plain decoding. Drafts draw with the same numbers
//               (distribution.h), so a proposal is accepted with at least (1 - TV) / (1 + TV).
//   rejection   x is accepted with min(1, p(x) / q(x)); otherwise the token is drawn from the
//               residual max(0, p - q). Accepts with 1 - TV, which no rule exceeds; the text of a
//               seed depends on the draft.
// TV is the total variation between p and q. docs/speculation-sampling.md has the figures.
//
// Rejection has one condition: the decision to judge a proposal must not depend on the token that
// was drawn for it or after it. Judging only likely tokens distorts the distribution.
//
// Source: Leviathan et al. 2023, Chen et al. 2023 (rejection); Daliri et al. 2025 (same text).
#pragma once

#include <cstdint>

#include "engine/spec/draft.h"

namespace thermocline::spec {

using Acceptance = SpecAcceptance;

struct Verdict {
  bool accepted;
  int token;  // the token at this position: the proposal's if it is accepted
};

// Judges a proposal for `position` (the number of tokens before it). A proposal without a
// distribution is judged by same text, which is rejection with q(x) = 1. `scratch` is overwritten;
// nothing allocates once it has been reserved for V tokens. Requires: `target` is not empty; a
// proposal's distribution is the one from which Pick(q, position, kToken) drew the token.
Verdict VerifyProposal(const sampling::Distribution& target, const Proposal& proposal,
                       Acceptance acceptance, const sampling::RandomSource& random,
                       std::uint64_t position, sampling::Distribution& scratch);

// The token at `position` if there is no proposal.
int DrawToken(const sampling::Distribution& target, const sampling::RandomSource& random,
              std::uint64_t position);

}  // namespace thermocline::spec
