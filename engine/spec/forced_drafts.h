// Drafts that a grammar forces: where it leaves one text, that text's tokens cost nothing to
// propose. A text can be cut into tokens in several ways, and the model may choose another one:
// where it mostly does, only every eighth chance is taken.
#pragma once

#include "engine/sampling/sampler.h"
#include "engine/spec/draft.h"

namespace thermocline::spec {

// The forced drafts of one sequence. One thread at a time.
class ForcedDrafts {
 public:
  void Begin() { *this = {}; }
  // Fills `draft` with at most `most` tokens that the grammar of `sampler` forces behind those it
  // has accepted. Returns how many. Requires: an empty draft.
  int Propose(sampling::Sampler& sampler, int most, Draft& draft);
  // Counts that the model chose the first `accepted` of the `proposed` tokens.
  void Add(sampling::Sampler& sampler, int proposed, int accepted);

 private:
  int proposed_ = 0, accepted_ = 0, passed_over_ = 0;
};

}  // namespace thermocline::spec
