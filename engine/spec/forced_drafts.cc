#include "engine/spec/forced_drafts.h"

#include <algorithm>
#include <array>
#include <span>

#include "engine/api/speculation.h"

namespace thermocline::spec {

int ForcedDrafts::Propose(sampling::Sampler& sampler, int most, Draft& draft) {
  constexpr int kEnough = 16, kOften = 8;
  if (most < 1) return 0;
  const bool mostly_wrong = proposed_ >= kEnough && 2 * accepted_ < proposed_;
  if (mostly_wrong && ++passed_over_ % kOften != 0) return 0;
  std::array<int, kDraftTokensMax> tokens;
  const std::size_t room = std::min(most, kDraftTokensMax);
  const int count = sampler.Forced(std::span(tokens).first(room));
  for (int i = 0; i < count; ++i) {
    draft[i].token = tokens[i];
    draft[i].confidence = kConfidenceClasses - 1;
    draft[i].num_alternates = 0;
    draft[i].distribution.Clear();
  }
  draft.size = count;
  return count;
}

void ForcedDrafts::Add(sampling::Sampler& sampler, int proposed, int accepted) {
  proposed_ += proposed;
  accepted_ += accepted;
  sampler.CountForced(proposed, accepted);
}

}  // namespace thermocline::spec
