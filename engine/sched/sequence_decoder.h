// The sampler and draft state of one sequence while it decodes in shared steps.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "engine/sampling/sampler.h"
#include "engine/spec/forced_drafts.h"
#include "engine/spec/ngram_source.h"

namespace thermocline::sched {

// The share of draft tokens that were accepted, by the source's confidence, over all decoders.
class DraftRecord {
 public:
  double Accepted(int confidence) const { return accepted_[confidence]; }
  void Add(int confidence, bool right) {
    accepted_[confidence] += ((right ? 1.0 : 0.0) - accepted_[confidence]) / 32;
  }

 private:
  static constexpr double kAtFirst = 0.75;  // high enough that drafts are tried
  std::array<double, spec::kConfidenceClasses> accepted_ = [] {
    std::array<double, spec::kConfidenceClasses> all{};
    all.fill(kAtFirst);
    return all;
  }();
};

// Decode thread only, except MakeMask and Draw.
class SequenceDecoder {
 public:
  SequenceDecoder(int vocab_size, int capacity)
      : sampler_(vocab_size, capacity, /*own_scratch=*/false), capacity_(capacity) {}

  // Starts with the sequence `prompt` + `generated`. `drafts_max`: maximum draft tokens from the
  // text, 0 = none.
  void Begin(const SamplingParams& params, std::span<const int> prompt,
             std::span<const int> generated, int drafts_max);
  // Forgets the sequence and releases its grammar.
  void End() { sampler_.Begin({}, {}); }

  // Fills draft() with at most `most` tokens to follow `sequence`: the tokens that its grammar
  // forces, or otherwise tokens from its text whose probability is at least `needed`.
  void Propose(std::span<const int> sequence, int most, double needed, const DraftRecord& record);
  std::span<const int> draft() const { return std::span(draft_tokens_).first(draft_.size); }
  bool forced() const { return forced_now_; }  // the grammar forces the draft
  void DropDraft() { draft_.Clear(); }
  // Works for one slice of time on the grammar's mask of the next token; returns true once the mask
  // is complete. May be called on any thread.
  bool MakeMask() { return masked_ = sampler_.MakeMask(); }
  bool masked() const { return masked_; }
  // Marks the mask as incomplete: the sequence skips steps until MakeMask completes it.
  void PostponeMask() { masked_ = false; }
  // Draws the tokens at `position` and after it from logits [1 + draft, V], as long as the draft is
  // right and each further mask is complete within a slice of time. May be called on any thread,
  // with that thread's scratch.
  void Draw(std::span<const float> logits, int position, sampling::SamplerScratch& scratch);
  // The tokens that Draw drew, at least 1. The first drawn().size() - 1 tokens of the draft were
  // right.
  std::span<const int> drawn() const { return drawn_; }
  // Records which draft tokens the last Draw accepted, unless a grammar forced them, and drops the
  // draft.
  void RecordAccepted(DraftRecord& record);

  sampling::Sampler& sampler() { return sampler_; }

 private:
  sampling::Sampler sampler_;
  const int capacity_;
  std::unique_ptr<spec::NgramSource> source_;  // created on first use
  spec::Draft draft_;
  std::array<int, spec::kProposalsMax> draft_tokens_ = {};
  std::vector<int> drawn_;
  int drafts_max_ = 0;
  spec::ForcedDrafts forced_;
  bool forced_now_ = false;
  bool masked_ = true;
};

}  // namespace thermocline::sched
