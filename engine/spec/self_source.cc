#include "engine/spec/self_source.h"

#include <algorithm>
#include <utility>

#include "engine/base/index.h"

namespace thermocline::spec {

SelfSource::SelfSource(const Params& p)
    : transformer_(p.transformer),
      cache_(p.cache),
      pool_(*p.model.pool),
      policies_(p.policies),
      kept_(p.policies.size()),
      proposals_(p.model.config.vocab_size, p.cache.capacity() + kProposalsMax),
      width_(p.width),
      acceptance_(p.acceptance) {
  wanted_.reserve(p.cache.capacity() + kProposalsMax);
}

void SelfSource::Begin(std::span<const int> prompt, const SamplingParams& params) {
  proposals_.Begin(prompt, params, width_, acceptance_ == Acceptance::kRejection);
  prompt_ = prompt.size();
}

Status SelfSource::Propose(std::span<const int> sequence, const More& more, Draft& draft) {
  ffn::SparseFfn& ffn = transformer_.ffn();
  ffn::Auditor* const auditor = transformer_.auditor();
  const int length = cache_.length();
  transformer_.SetAuditor(nullptr);
  ffn.SetCounting(false);
  for (int l = 0; l < base::IntSize(policies_); ++l) {
    kept_[l] = ffn.policy(l);
    ffn.policy(l) = policies_[l];
  }
  Status drawn = Draw(sequence, more, draft);
  for (int l = 0; l < base::IntSize(policies_); ++l) ffn.policy(l) = kept_[l];
  cache_.SetLength(std::min(length, cache_.length()));
  ffn.SetCounting(true);
  transformer_.SetAuditor(auditor);
  return drawn;
}

Status SelfSource::Draw(std::span<const int> sequence, const More& more, Draft& draft) {
  using exec::Transformer;
  wanted_.assign(sequence.begin(), sequence.end());
  for (int i = 0; i < draft.size; ++i) wanted_.push_back(draft[i].token);
  while (draft.size < kProposalsMax && base::IntSize(wanted_) <= capacity() && more(draft)) {
    const std::size_t at = cache_.length();
    const auto tokens = std::span<const int>(wanted_).subspan(at);
    CHECK(tokens.size() >= 1 && tokens.size() <= kProposalsMax);
    ASSIGN_OR_RETURN(const auto logits,
                     transformer_.Forward(tokens, cache_, Transformer::Logits::kLast,
                                          Transformer::Step::kVerify));
    transformer_.EndVerify(0);  // drafting must not influence which neurons stay in memory
    proposals_.Accept(std::span<const int>(wanted_).subspan(prompt_));
    Proposal& proposal = draft[draft.size];
    proposals_.Draw(logits, base::IntSize(wanted_), proposal);
    wanted_.push_back(proposal.token);
    ++draft.size;
  }
  return OkStatus();
}

}  // namespace thermocline::spec
