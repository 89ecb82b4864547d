#include "engine/sched/sequence_decoder.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/spec/verify.h"

namespace thermocline::sched {

void SequenceDecoder::Begin(const SamplingParams& params, std::span<const int> prompt,
                            std::span<const int> generated, int drafts_max) {
  sampler_.Begin(params, prompt);
  for (const int token : generated) sampler_.Accept(token);
  draft_.Clear();
  masked_ = true;
  drafts_max_ = std::min(drafts_max, kDraftTokensMax);
  forced_.Begin();
  if (drafts_max_ == 0) return;
  if (source_ == nullptr) source_ = std::make_unique<spec::NgramSource>(capacity_);
  source_->Begin(prompt, params);
}

void SequenceDecoder::Propose(std::span<const int> sequence, int most, double needed,
                              const DraftRecord& record) {
  draft_.Clear();
  forced_now_ = forced_.Propose(sampler_, most, draft_) > 0;
  most = std::min(most, drafts_max_);
  if (!forced_now_ && most > 0) {
    const auto more = [&](const spec::Draft& draft) { return draft.size < most; };
    if (!source_->Propose(sequence, more, draft_).ok()) draft_.Clear();
    double right = 1;  // the probability that all tokens up to this one are right
    for (int i = 0; i < draft_.size; ++i) {
      right *= record.Accepted(draft_[i].confidence);
      if (right >= needed) continue;
      draft_.size = i;
    }
  }
  for (int i = 0; i < draft_.size; ++i) draft_tokens_[i] = draft_[i].token;
}

void SequenceDecoder::Draw(std::span<const float> logits, int position,
                           sampling::SamplerScratch& scratch) {
  sampler_.UseScratch(scratch);
  const std::size_t vocab = logits.size() / (1 + draft_.size);
  drawn_.clear();
  for (int i = 0; i <= draft_.size; ++i) {
    masked_ = i == 0 || sampler_.MakeMask();
    if (!masked_) return;
    const int token = spec::DrawToken(sampler_.Compute(logits.subspan(i * vocab, vocab)),
                                      sampler_.random_source(), position + i);
    sampler_.Accept(token);
    drawn_.push_back(token);
    if (i < draft_.size && token != draft_tokens_[i]) return;
  }
}

void SequenceDecoder::RecordAccepted(DraftRecord& record) {
  const int right = base::IntSize(drawn_) - 1;
  if (forced_now_) {
    forced_.Add(sampler_, draft_.size, right);
  } else {
    for (int i = 0; i < std::min(draft_.size, right + 1); ++i)
      record.Add(draft_[i].confidence, i < right);
  }
  draft_.Clear();
}

}  // namespace thermocline::sched
