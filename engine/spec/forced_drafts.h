// Drafts that a grammar forces: where it allows only one text, that text's tokens cost nothing to
// propose. A text can be tokenized in several ways, and the model may choose another one: if it
// mostly does, only every eighth opportunity is used.
#pragma once

#include "engine/sampling/sampler.h"
#include "engine/spec/draft.h"

namespace thermocline::spec {

// The forced drafts of one sequence. One thread at a time.
class ForcedDrafts {
 public:
  void Begin() { *this = {}; }
  // Fills `draft` with at most `most` tokens that the grammar of `sampler` forces after the
  // accepted ones. Returns their number. Requires: an empty draft.
  int Propose(sampling::Sampler& sampler, int most, Draft& draft);
  // Records that the model chose the first `accepted` of the `proposed` tokens.
  void Add(sampling::Sampler& sampler, int proposed, int accepted);

 private:
  int proposed_ = 0, accepted_ = 0, passed_over_ = 0;
};

}  // namespace thermocline::spec
