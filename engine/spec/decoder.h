// Decoding in rounds: draft, verify, keep the accepted tokens.
//
//   round r:   [last token, d1 .. dn] --target--> n + 1 distributions
//              d1 .. dk accepted, then the token behind them; K and V of the others dropped
//   branch:    ... and meanwhile the draft of round r + 1, for the likeliest (k, token)
// A round without a draft is plain decoding. Every row is judged with the proposal for it
// (verify.h), including the row after the verified tokens if it has a proposal. So the tokens do
// not depend on where rounds begin, on threads or on clocks: sync and branch give the same text,
// and with Acceptance::kSameText that is plain decoding's.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/base/index.h"
#include "engine/sampling/sampler.h"
#include "engine/spec/async_drafter.h"
#include "engine/spec/controller.h"
#include "engine/spec/forced_drafts.h"
#include "engine/spec/target.h"
#include "engine/spec/verify.h"

namespace thermocline::spec {

// Maximum outcomes to draft from in one round: all of them, or fewer with Acceptance::kRejection,
// where every drafted token keeps its distribution.
int BranchesMax(Acceptance acceptance);
// Maximum bytes of these distributions: 12 per vocabulary entry and drafted token.
std::size_t DistributionBytes(Acceptance acceptance, int vocab_size);

// Decode thread only. Borrows all its parameters. Allocates nothing per token once the draft
// buffers have grown to the sizes that sampling needs.
class Decoder {
 public:
  struct Params {
    Target& target;
    sampling::Sampler& sampler;     // of the target's tokens
    int capacity = 0;               // tokens of a sequence
    DraftSource* source = nullptr;  // null: no drafts
    // The source that drafts while the target verifies; null: `source`, if it can.
    DraftSource* beside = nullptr;
    Controller* controller = nullptr;  // with a source
    Acceptance acceptance = Acceptance::kSameText;
    int width = 2;
    // For tests that record draws; null: the sampler's.
    const sampling::RandomSource* random_source = nullptr;
  };
  explicit Decoder(const Params& params);
  ~Decoder();

  // Starts a sequence after `prompt` and, if it is resumed, after the tokens `generated` before; in
  // that case the target has computed all but the last one. The sampler has begun and accepted
  // `generated`. `forced_max`: tokens forced by a grammar that are verified at once, in every mode;
  // 0 = they are sampled one by one.
  void Begin(std::span<const int> prompt, SpecMode mode, int tokens_max,
             std::span<const int> generated = {}, int forced_max = 0);
  // Returns the first token, drawn from the logits after the prompt.
  int First(std::span<const float> logits);
  // Returns up to `wanted` further tokens, at least one; valid until the next call. The target has
  // computed all tokens of the sequence but the last. Errors as Target::Step; then no token was
  // added. Requires: wanted >= 1; room for two more tokens in the capacity.
  exec::StepResult<std::span<const int>> Next(int wanted);
  // The number of tokens that the target computed in the last Next.
  int computed() const { return base::IntSize(inputs_); }
  // The target's logits [V] from which token `i` of the last Next was drawn; valid until the next
  // call.
  std::span<const float> row(std::size_t i) const {
    const std::size_t vocab = logits_.size() / inputs_.size();
    return logits_.subspan(i * vocab, vocab);
  }
  // Sets a function that is called repeatedly during a long round, from any thread; false cancels
  // the round (Cancelled). Call between sequences.
  void SetOnWait(const std::function<bool()>& should_continue);
  // Ends the sequence and all drafting for it.
  void End();

  // The prompt and the generated tokens.
  std::span<const int> sequence() const { return sequence_; }
  const SpecUsage& usage() const { return usage_; }
  const SpecStats& stats() const { return stats_; }
  // Keeps the last `count` rounds in stats().rounds.
  void KeepRounds(int count) {
    rounds_max_ = count;
    stats_.rounds.reserve(rounds_max_);
  }

 private:
  void ReleaseGrammar();
  // Fills draft_ for this round, from a branch drafted ahead or with a new draft.
  Status MakeDraft(const Controller::Plan& plan, Round& round);
  exec::StepResult<std::span<const int>> VerifyForced(int n);
  // Runs the target on the last token and `n` tokens of draft_, and judges its distributions.
  exec::StepResult<std::span<const int>> Verify(int n, Round& round);
  void StartAhead(const Controller::Plan& plan, int n);
  // Verifies the rows and appends the resulting tokens to out_.
  void VerifyRows(std::span<const float> logits, Round& round);
  // The rank of `token` among the guesses of `proposal`; `whole`: the draft was fully accepted.
  static int RankOf(int token, const Proposal& proposal, bool whole);
  void StopDrafting(const Status& why);
  void UseNextDraft(Round& round);
  void Count(const Round& round);
  void KeepRound(const Round& round);
  void UpdateState();
  const sampling::RandomSource& random_source() const {
    return random_ != nullptr ? *random_ : sampler_.random_source();
  }

  Target& target_;
  sampling::Sampler& sampler_;
  const int capacity_;
  DraftSource* const source_;
  DraftSource* const beside_;  // null: no drafting while the target verifies
  Controller* const controller_;
  const Acceptance acceptance_;
  const int width_;
  const sampling::RandomSource* const random_;
  std::unique_ptr<AsyncDrafter> ahead_;

  std::vector<int> sequence_, inputs_, out_;
  std::span<const float> logits_;  // of the last Step, a row for each of inputs_
  Draft draft_, next_;             // of this round, and the start of the next one
  sampling::Distribution scratch_;
  std::vector<Branch> branches_;
  bool drafting_ = false;  // this request drafts
  ForcedDrafts forced_;
  int forced_max_ = 0;
  DecayedMean overhead_s_;
  SpecUsage usage_;
  SpecStats stats_;
  std::size_t rounds_max_ = 0;
};

}  // namespace thermocline::spec
