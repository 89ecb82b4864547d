// Decoding in rounds: draft, verify, keep what is accepted.
//
//   round r:   [last token, d1 .. dn] --target--> n + 1 distributions
//              d1 .. dk accepted, then the token behind them; keys and values of the others dropped
//   branch:    ... and meanwhile the draft of round r + 1, for the likeliest (k, token)
// A round without a draft is plain decoding. Every row is judged with what was proposed for it
// (verify.h), the one behind the verified tokens too if a token was proposed for it, so which
// tokens come does not depend on where rounds begin, nor on threads or clocks: sync and branch give
// the same text, and with Acceptance::kSameText that is plain decoding's.
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

// Outcomes that are drafted on from in one round: all there are; fewer with Acceptance::kRejection,
// where every drafted token keeps its distribution.
int BranchesMax(Acceptance acceptance);
// Bytes that those may take: 12 for each token of the vocabulary and drafted token.
std::size_t DistributionBytes(Acceptance acceptance, int vocab_size);

// Decode thread only. Borrows everything. Allocates nothing per token once the drafts' buffers have
// grown to what sampling needs.
class Decoder {
 public:
  struct Params {
    Target& target;
    sampling::Sampler& sampler;     // of the target's tokens
    int capacity = 0;               // tokens of a sequence
    DraftSource* source = nullptr;  // null: no drafts
    // Drafts while the target verifies; null: `source`, if it can.
    DraftSource* beside = nullptr;
    Controller* controller = nullptr;  // with a source
    Acceptance acceptance = Acceptance::kSameText;
    int width = 2;
    const sampling::Chance* chance = nullptr;  // tests see every draw here; null: the sampler's
  };
  explicit Decoder(const Params& params);
  ~Decoder();

  // Starts behind `prompt` and, of a sequence that goes on, what was `generated` before; the target
  // has computed all of them, then but for the last. The sampler has begun, and accepted those.
  // `forced_max`: tokens that a grammar forces are verified so many at a time, in every mode; 0 =
  // they are sampled one by one.
  void Begin(std::span<const int> prompt, SpecMode mode, int tokens_max,
             std::span<const int> generated = {}, int forced_max = 0);
  // The first token, from the logits behind the prompt.
  int First(std::span<const float> logits);
  // Up to `wanted` further tokens, at least one; valid until the next call. The target has computed
  // all tokens of the sequence but the last. Errors as Target::Step: nothing was added then.
  // Requires: wanted >= 1; room for two more tokens in the capacity.
  exec::StepResult<std::span<const int>> Next(int wanted);
  // Tokens that the last Next had the target compute.
  int computed() const { return base::IntSize(inputs_); }
  // The target's logits [V] that gave token `i` of the last Next; valid as long.
  std::span<const float> row(std::size_t i) const {
    const std::size_t vocab = logits_.size() / inputs_.size();
    return logits_.subspan(i * vocab, vocab);
  }
  // Asked now and then while a round takes long, from any thread; false gives it up (Cancelled).
  // Between sequences.
  void SetOnWait(const std::function<bool()>& goes_on);
  // Ends the sequence: nothing is drafted any more.
  void End();

  // Prompt and tokens.
  std::span<const int> sequence() const { return sequence_; }
  const SpecUsage& usage() const { return usage_; }
  const SpecStats& stats() const { return stats_; }
  // Keeps the last so many rounds in stats().rounds.
  void KeepRounds(int count) {
    rounds_max_ = count;
    stats_.rounds.reserve(rounds_max_);
  }

 private:
  void LetGoOfGrammar();
  // Fills draft_ for this round, from the branch that was drafted ahead or anew.
  Status MakeDraft(const Controller::Plan& plan, Round& round);
  exec::StepResult<std::span<const int>> VerifyForced(int n);
  // Has the target compute the last token and `n` of draft_, and judges what it makes of them.
  exec::StepResult<std::span<const int>> Verify(int n, Round& round);
  void StartAhead(const Controller::Plan& plan, int n);
  // Judges the rows and appends what comes to out_.
  void JudgeRows(std::span<const float> logits, Round& round);
  // The rank of `token` among the guesses of `proposal`; `whole`: behind a draft that was accepted
  // whole.
  static int RankOf(int token, const Proposal& proposal, bool whole);
  void GiveUpDrafting(const Status& why);
  void TakeNext(Round& round);
  void Count(const Round& round);
  void KeepRound(const Round& round);
  void UpdateState();
  const sampling::Chance& chance() const {
    return chance_ != nullptr ? *chance_ : sampler_.chance();
  }

  Target& target_;
  sampling::Sampler& sampler_;
  const int capacity_;
  DraftSource* const source_;
  DraftSource* const beside_;  // null: nothing drafts while the target verifies
  Controller* const controller_;
  const Acceptance acceptance_;
  const int width_;
  const sampling::Chance* const chance_;
  std::unique_ptr<AsyncDrafter> ahead_;

  std::vector<int> sequence_, inputs_, out_;
  std::span<const float> logits_;  // of the last Step, a row for each of inputs_
  Draft draft_, next_;             // of this round, and what the next begins with
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
