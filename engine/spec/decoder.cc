#include "engine/spec/decoder.h"

#include <algorithm>
#include <chrono>

#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/base/stopwatch.h"

namespace thermocline::spec {
int BranchesMax(Acceptance acceptance) {
  return acceptance == Acceptance::kRejection ? 8 : kProposalsMax * (kAlternatesMax + 2);
}

std::size_t DistributionBytes(Acceptance acceptance, int vocab_size) {
  if (acceptance != Acceptance::kRejection) return 0;
  constexpr std::size_t kDrafts = 2;  // of this round and the next
  return (BranchesMax(acceptance) + kDrafts) * kProposalsMax * vocab_size *
         (sizeof(int) + sizeof(double));
}

Decoder::Decoder(const Params& p)
    : target_(p.target),
      sampler_(p.sampler),
      capacity_(p.capacity),
      source_(p.source),
      beside_(p.beside != nullptr                           ? p.beside
              : p.source != nullptr && p.source->parallel() ? p.source
                                                            : nullptr),
      controller_(p.controller),
      acceptance_(p.acceptance),
      width_(p.width),
      random_(p.random_source) {
  sequence_.reserve(capacity_ + kProposalsMax);
  inputs_.reserve(kProposalsMax);
  out_.reserve(kProposalsMax);
  if (source_ == nullptr) return;
  branches_.reserve(kProposalsMax * (kAlternatesMax + 2));
  if (beside_ != nullptr)
    ahead_ = std::make_unique<AsyncDrafter>(*beside_, BranchesMax(acceptance_));
}

Decoder::~Decoder() = default;

void Decoder::Begin(std::span<const int> prompt, SpecMode mode, int tokens_max,
                    std::span<const int> generated, int forced_max) {
  sequence_.assign(prompt.begin(), prompt.end());
  sequence_.insert(sequence_.end(), generated.begin(), generated.end());
  draft_.Clear();
  usage_ = {};
  forced_max_ = forced_max;
  forced_.Begin();
  if (ahead_ != nullptr) ahead_->Abandon();
  drafting_ = source_ != nullptr && mode != SpecMode::kOff && tokens_max != 0;
  if (!drafting_) return;
  const bool greedy = sampler_.params().temperature == 0;
  source_->Begin(prompt, sampler_.params());
  if (beside_ != nullptr && beside_ != source_) beside_->Begin(prompt, sampler_.params());
  controller_->Begin(
      {.mode = mode,
       .tokens_max = tokens_max,
       .greedy = greedy,
       .prompt = base::IntSize(prompt),
       .extra = acceptance_ == Acceptance::kRejection && !greedy && !source_->free()});
}

void Decoder::End() {
  if (ahead_ != nullptr) ahead_->Abandon();
  if (source_ != nullptr) target_.SetThreads(target_.threads());
  draft_.Clear();
  UpdateState();
  ReleaseGrammar();
}

// Releases the grammar of an ended answer, so that its memory can be reused.
void Decoder::ReleaseGrammar() {
  if (sampler_.params().constraint == nullptr) return;
  if (drafting_) source_->Begin({}, {});
  if (drafting_ && beside_ != nullptr && beside_ != source_) beside_->Begin({}, {});
  sampler_.Begin({}, {});
}

int Decoder::First(std::span<const float> logits) {
  const std::uint64_t position = sequence_.size();
  const int token = DrawToken(sampler_.Compute(logits), random_source(), position);
  sampler_.Accept(token);
  sequence_.push_back(token);
  return token;
}

exec::StepResult<std::span<const int>> Decoder::Next(int wanted) {
  const int room = std::min(wanted - 1, capacity_ - base::IntSize(sequence_) - 1);
  if (draft_.size == 0) {
    const int forced = forced_.Propose(sampler_, std::min(room, forced_max_), draft_);
    if (forced > 0) return VerifyForced(forced);
  }
  const base::Stopwatch whole;
  Round round;
  int n = 0;
  if (drafting_) {
    const Controller::Plan plan = controller_->Next(room);
    round.mode = plan.mode;
    round.threads = plan.threads;
    const Status made = MakeDraft(plan, round);
    if (made.code() == StatusCode::kCancelled) return made;
    if (!made.ok()) StopDrafting(made);
  }
  if (drafting_) {
    const Controller::Plan& plan = controller_->plan();
    n = plan.mode == SpecMode::kOff ? 0 : controller_->Verified(draft_);
    if (plan.threads != 0) target_.SetThreads(plan.threads);
    StartAhead(plan, n);
  }
  if (n > 0) target_.ExpectKept(controller_->ExpectedKept(draft_, n));
  auto verified = Verify(n, round);
  if (!verified.ok()) return verified;
  if (!drafting_) {
    ++stats_.plain_steps;
    stats_.verify_s += round.verify_s;
    stats_.mode_now = SpecModeName(SpecMode::kOff);
    return verified;
  }
  UseNextDraft(round);
  round.total_s = whole.Seconds();
  controller_->Add(draft_, round);
  Count(round);
  std::swap(draft_, next_);
  return std::span<const int>(out_);
}

exec::StepResult<std::span<const int>> Decoder::Verify(int n, Round& round) {
  inputs_.assign(1, sequence_.back());
  for (int i = 0; i < n; ++i) inputs_.push_back(draft_[i].token);
  round.verified = n;
  const base::Stopwatch verifying;
  const auto logits = target_.Step(inputs_);
  round.verify_s = verifying.Seconds();
  if (!logits.ok()) {
    if (ahead_ != nullptr) ahead_->Abandon();
    return logits.error();
  }
  logits_ = *logits;
  VerifyRows(*logits, round);
  target_.Keep(round.accepted + 1);
  return std::span<const int>(out_);
}

// A round that the controller does not see: forced drafts tell nothing about the source.
exec::StepResult<std::span<const int>> Decoder::VerifyForced(int n) {
  Round round;
  if (drafting_) target_.SetThreads(target_.threads());
  target_.ExpectKept(n + 1);
  auto verified = Verify(n, round);
  draft_.Clear();
  if (!verified.ok()) return verified;
  forced_.Add(sampler_, n, round.accepted);
  stats_.verify_s += round.verify_s;
  ++stats_.plain_steps;
  return verified;
}

// Continues the answer without drafts after an error of the source.
void Decoder::StopDrafting(const Status& why) {
  base::LogWarning("no further drafts for this answer: ", why.message());
  drafting_ = false;
  draft_.Clear();
  target_.SetThreads(target_.threads());
}

void Decoder::SetOnWait(const std::function<bool()>& should_continue) {
  if (source_ == nullptr) return;
  if (ahead_ != nullptr) ahead_->SetOnWait(should_continue);
  if (beside_ != nullptr && beside_ != source_) beside_->SetOnWait(should_continue);
  source_->SetOnWait(should_continue);
}

Status Decoder::MakeDraft(const Controller::Plan& plan, Round& round) {
  const int before = draft_.size;  // from a branch that was drafted ahead
  if (plan.mode == SpecMode::kOff) {
    draft_.Clear();
    return OkStatus();
  }
  round.drafted = before;
  if (!controller_->More(draft_)) return OkStatus();
  const base::Stopwatch watch;
  if (ahead_ != nullptr) ahead_->WaitUntilIdle();
  source_->SetThreads(0);
  const auto more = [this](const Draft& draft) { return controller_->More(draft); };
  RETURN_IF_ERROR(source_->Propose(sequence_, more, draft_));
  round.drafted = draft_.size;
  round.draft_tokens = draft_.size - before;
  if (round.draft_tokens > 0) round.wait_s = watch.Seconds();
  round.catch_up_s = source_->catch_up_s();
  round.draft_s = round.wait_s - round.catch_up_s;
  return OkStatus();
}

void Decoder::StartAhead(const Controller::Plan& plan, int n) {
  const bool whole = plan.mode == SpecMode::kExhaustive;
  if (ahead_ == nullptr || (plan.mode != SpecMode::kBranch && !whole)) return;
  const int room = capacity_ - base::IntSize(sequence_) - n - 2;
  if (room < 1) return;
  ahead_->WaitUntilIdle();
  beside_->SetThreads(plan.draft_threads);
  beside_->OnTargetIdle(sequence_);
  controller_->Branches(draft_, n, branches_);
  double all = 0;
  for (const Branch& branch : branches_)
    if (branch.token < 0) all = branch.probability / std::max(1e-9, controller_->BonusHit(1));
  ahead_->Start({.sequence = sequence_,
                 .draft = draft_,
                 .n = n,
                 .depth = std::min(plan.tokens_max, room),
                 .width = width_,
                 .bonus_hit = [&](int rank) { return all * controller_->BonusHit(rank); },
                 .whole = whole},
                branches_);
}

void Decoder::VerifyRows(std::span<const float> logits, Round& round) {
  const std::size_t vocab = logits.size() / inputs_.size();
  out_.clear();
  for (int i = 0;; ++i) {
    const auto row = logits.subspan(i * vocab, vocab);
    const sampling::Distribution& target = sampler_.Compute(row);
    const std::uint64_t position = sequence_.size();
    Verdict verdict{false, 0};
    if (i < draft_.size) {
      verdict = VerifyProposal(target, draft_[i], acceptance_, random_source(), position, scratch_);
      ++round.judged;
    } else {
      verdict.token = DrawToken(target, random_source(), position);
    }
    sampler_.Accept(verdict.token);
    sequence_.push_back(verdict.token);
    out_.push_back(verdict.token);
    if (!verdict.accepted || i == round.verified) {
      round.next_right = verdict.accepted;
      if (i < draft_.size)
        round.rank = RankOf(verdict.token, draft_[i], round.accepted == round.verified);
      return;
    }
    ++round.accepted;
  }
}

// After a rejection the guesses are the draft's alternatives; after a fully accepted draft they are
// its next token, then that token's alternatives.
int Decoder::RankOf(int token, const Proposal& proposal, bool whole) {
  if (token == proposal.token) return whole ? 1 : 0;
  for (int i = 0; i < proposal.num_alternates; ++i) {
    if (proposal.alternates[i] == token) return i + (whole ? 2 : 1);
  }
  return whole || proposal.num_alternates > 0 ? 0 : -1;
}

// Takes the draft that the next round begins with: the branch that matched, or the rest of this
// draft.
void Decoder::UseNextDraft(Round& round) {
  next_.Clear();
  const int token = out_.back();
  if (ahead_ != nullptr && ahead_->running()) {
    const base::Stopwatch waiting;
    const AsyncDrafter::Report report = ahead_->Finish(round.accepted, token, next_);
    round.wait_s += waiting.Seconds();
    round.ahead_s = report.seconds;
    round.ahead_tokens = report.tokens;
    round.guessed = true;
    round.hit = report.hit;
    if (round.rank < 0 && report.next != nullptr && round.accepted == round.verified)
      round.rank = RankOf(token, *report.next, true);
    if (report.hit) return;
  }
  if (round.accepted < round.verified || round.verified >= draft_.size ||
      draft_[round.verified].token != token)
    return;
  for (int i = round.verified + 1; i < draft_.size; ++i) std::swap(next_[next_.size++], draft_[i]);
}

void Decoder::Count(const Round& round) {
  const std::size_t k = round.accepted;
  const std::size_t n = round.verified;
  stats_.verify_s += round.verify_s;
  stats_.draft_s += round.draft_s + round.ahead_s;
  stats_.wait_s += round.wait_s;
  usage_.wait_s += round.wait_s;
  stats_.mode_now = SpecModeName(round.mode);
  stats_.draft_length = round.verified;
  stats_.drafted_tokens += round.draft_tokens + round.ahead_tokens;
  if (round.guessed) {
    (round.hit ? stats_.branch_hits : stats_.branch_misses)[k] += 1;
    ++(round.hit ? usage_.branch_hits : usage_.branch_misses);
  }
  overhead_s_.Add(round.total_s - round.verify_s - round.wait_s);
  if (n == 0) {
    ++stats_.plain_steps;
    return;
  }
  ++stats_.drafts;
  ++usage_.drafts;
  stats_.draft_tokens += round.verified;
  usage_.draft_tokens += round.verified;
  stats_.accepted_tokens += round.accepted;
  usage_.accepted_tokens += round.accepted;
  for (std::size_t i = 0; i < k; ++i) ++stats_.accepted_at[i];
  ++stats_.outcomes[n][k];
  if (round.rank >= 0) ++(k < n ? stats_.correction_ranks : stats_.bonus_ranks)[round.rank];
  KeepRound(round);
}

void Decoder::KeepRound(const Round& round) {
  if (stats_.rounds.size() >= rounds_max_) return;
  SpecRound kept{.n = round.verified, .k = round.accepted, .rank = round.rank};
  for (int i = 0; i < round.verified; ++i)
    kept.confidence[i] = static_cast<std::uint8_t>(draft_[i].confidence);
  stats_.rounds.push_back(kept);
}

void Decoder::UpdateState() {
  if (controller_ == nullptr) return;
  const Controller& c = *controller_;
  stats_.phi_p = stats_.acceptance = c.phi().p;
  stats_.phi_a = c.phi().a;
  stats_.phi_c = stats_.phi_floor = c.phi().c;
  stats_.draft_token_s = c.draft_token_s();
  for (int t = 1; t <= kDraftTokensMax + 1; ++t) stats_.verify_step_s[t - 1] = c.verify_s()(t);
  stats_.verify_1_s = c.verify_s()(1);
  stats_.verify_per_token_s =
      (c.verify_s()(kDraftTokensMax + 1) - c.verify_s()(1)) / kDraftTokensMax;
  stats_.draft_slowdown = c.draft_slowdown();
  stats_.verify_slowdown = c.verify_slowdown();
  stats_.round_overhead_s = overhead_s_.value();
  stats_.wasted_tokens = stats_.drafted_tokens - stats_.accepted_tokens;
}

}  // namespace thermocline::spec
