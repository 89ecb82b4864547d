// A sequence's own part while it answers in shared steps: a sampler, and drafts from its
// own text.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "engine/sampling/sampler.h"
#include "engine/spec/forced_drafts.h"
#include "engine/spec/ngram_source.h"

namespace thermocline::sched {

// The shares of proposals that were right, by the source's confidence; of all lanes.
class DraftRecord {
 public:
  double Accepted(int confidence) const { return accepted_[confidence]; }
  void Add(int confidence, bool right) {
    accepted_[confidence] += ((right ? 1.0 : 0.0) - accepted_[confidence]) / 32;
  }

 private:
  static constexpr double kAtFirst = 0.75;  // it has to be tried
  std::array<double, spec::kConfidenceClasses> accepted_ = [] {
    std::array<double, spec::kConfidenceClasses> all{};
    all.fill(kAtFirst);
    return all;
  }();
};

// Decode thread, but for Draw.
class Lane {
 public:
  Lane(int vocab_size, int capacity)
      : sampler_(vocab_size, capacity, /*own_scratch=*/false), capacity_(capacity) {}

  // Goes on behind `prompt` and what was `generated`. `drafts_max`: tokens of a draft from the
  // text, 0 = none.
  void Begin(const SamplingParams& params, std::span<const int> prompt,
             std::span<const int> generated, int drafts_max);
  // Forgets the sequence: a grammar is held no longer.
  void End() { sampler_.Begin({}, {}); }

  // Fills draft() with at most `most` tokens behind `sequence`: those that its grammar forces, else
  // those of its text that are as probable as `needed`.
  void Propose(std::span<const int> sequence, int most, double needed, const DraftRecord& record);
  std::span<const int> draft() const { return std::span(draft_tokens_).first(draft_.size); }
  bool forced() const { return forced_now_; }  // by its grammar
  void DropDraft() { draft_.Clear(); }
  // Works on the grammar's mask of the next token; true once it is made, after a slice of time for
  // it. On any thread.
  bool MakeMask() { return masked_ = sampler_.MakeMask(); }
  bool masked() const { return masked_; }
  // Its mask is made later: until then it sits out.
  void PutOffMask() { masked_ = false; }
  // Draws the tokens at `position` and behind it from logits [1 + draft, V], as far as the draft is
  // right, and the masks of the further ones are made in a slice of time. On any thread, with a
  // scratch of its own.
  void Draw(std::span<const float> logits, int position, sampling::SamplerScratch& scratch);
  // Those, 1 at least. The first drawn().size() - 1 of the draft were right.
  std::span<const int> drawn() const { return drawn_; }
  // Counts what the last Draw made of the draft, unless a grammar forced it, and drops it.
  void Judge(DraftRecord& record);

  sampling::Sampler& sampler() { return sampler_; }

 private:
  sampling::Sampler sampler_;
  const int capacity_;
  std::unique_ptr<spec::NgramSource> source_;  // made when it is first needed
  spec::Draft draft_;
  std::array<int, spec::kProposalsMax> draft_tokens_ = {};
  std::vector<int> drawn_;
  int drafts_max_ = 0;
  spec::ForcedDrafts forced_;
  bool forced_now_ = false;
  bool masked_ = true;
};

}  // namespace thermocline::sched
