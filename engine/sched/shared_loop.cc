#include "engine/sched/shared_loop.h"

#include <algorithm>
#include <utility>

#include "engine/base/index.h"
#include "engine/sched/run_for.h"

namespace thermocline::sched {

using exec::Transformer;

SharedLoop::SharedLoop(const Params& p)
    : transformer_(p.transformer),
      pool_(p.pool),
      answers_(p.answers),
      governor_(p.governor),
      capacity_(p.capacity),
      drafts_max_(p.drafts_max) {}

double SharedLoop::Run(std::span<Share> shares) {
  const StepTimer timer;
  governor_.SetModes(shares.front().sequence->modes);
  for (const Share& share : shares) {
    Sequence& s = *share.sequence;
    s.error = {};
    if (s.usage.phase == Phase::kQueued) s.usage.phase = Phase::kPrefill;
    if (std::exchange(s.started, true)) continue;
    s.usage.begun_at = SteadyClock::now();
    s.usage.queue_s = Seconds(s.usage.begun_at - s.job.submitted);
  }
  const auto logits = Forward(shares);
  if (logits.ok()) {
    Take(shares, *logits);
    DrawAll();
    for (const Draw& draw : draws_) Give(*draw.share, draw.logits);
    if (step_ != Transformer::Step::kDecode) transformer_.CountKept(kept_);
    governor_.AfterStep(base::IntSize(draws_));
  } else {
    for (Share& share : shares) {
      share.sequence->error = logits.error();
      share.why = Stop::kError;
    }
  }
  Count(shares, timer);
  return timer.elapsed();
}

exec::StepResult<std::span<const float>> SharedLoop::Forward(std::span<const Share> shares) {
  parts_.clear();
  step_tokens_.clear();
  step_tokens_.reserve(transformer_.tokens_max());  // parts refer to it, so it must not grow
  bool reads = false, decoded = false, verifies = false;
  for (const Share& share : shares) {
    Sequence& s = *share.sequence;
    if (share.answers()) {
      step_tokens_.push_back(s.tokens.back());
      if (share.draft == 0 && s.lane != nullptr)
        s.lane->DropDraft();  // drafted for a step that did not run
      if (share.draft > 0)
        step_tokens_.insert(step_tokens_.end(), s.lane->draft().begin(), s.lane->draft().end());
      parts_.push_back({std::span(step_tokens_).last(share.tokens()), &s.cache, share.tokens()});
      decoded = true;
      verifies = verifies || share.draft > 0;
    } else {
      parts_.push_back({share.read.tokens, &s.cache, share.read.rows()});
      reads = true;
    }
    CHECK(!(reads && decoded) || s.lossless);
  }
  transformer_.SetOnWait([&] {
    return std::any_of(shares.begin(), shares.end(),
                       [this](const Share& share) { return answers_.GoesOn(share.sequence->job); });
  });
  kept_ = 0;
  step_ = reads ? (decoded ? Transformer::Step::kMixed : Transformer::Step::kPrefill)
                : (verifies ? Transformer::Step::kVerify : Transformer::Step::kDecode);
  auto logits = transformer_.ForwardParts(parts_, step_);
  transformer_.SetOnWait({});
  return logits;
}

// Splits the step's logits by sequence and lists the tokens to draw.
void SharedLoop::Take(std::span<Share> shares, std::span<const float> logits) {
  draws_.clear();
  const std::size_t vocab = transformer_.config().vocab_size;
  for (Share& share : shares) {
    Sequence& s = *share.sequence;
    const std::size_t rows = share.answers() ? share.tokens() : share.read.rows();
    const auto own = logits.first(rows * vocab);
    logits = logits.subspan(own.size());
    if (!share.answers()) {
      share.why = answers_.Read(s, s.cache, share.read, own);
      if (!share.read.last || share.why != Stop::kNone) continue;
      share.why = answers_.EndPrompt(s, s.cache);
      if (share.why != Stop::kNone) continue;
    }
    LaneOf(s);
    draws_.push_back({&share, share.answers() ? own : own.last(vocab)});
  }
}

void SharedLoop::DrawAll() {
  while (base::IntSize(scratch_) < pool_.threads())
    scratch_.push_back(
        std::make_unique<sampling::SamplerScratch>(transformer_.config().vocab_size));
  pool_.Run(base::IntSize(draws_), [this](int i, int thread) {
    const Draw& draw = draws_[i];
    Sequence& s = *draw.share->sequence;
    s.lane->Draw(draw.logits, base::IntSize(s.tokens), *scratch_[thread]);
  });
}

bool SharedLoop::MakeMask(Sequence& s) {
  return s.job.request.sampling.constraint == nullptr || LaneOf(s).MakeMask();
}

void SharedLoop::MakeMasks(std::span<Sequence* const> sequences, double seconds) {
  masks_.clear();
  for (Sequence* s : sequences)
    if (s->job.request.sampling.constraint != nullptr) masks_.push_back(&LaneOf(*s));
  const int count = base::IntSize(masks_);
  for (int i = RunFor(pool_, count, seconds, [this](int at) { masks_[at]->MakeMask(); }); i < count;
       ++i)
    masks_[i]->PutOffMask();
}

void SharedLoop::Give(Share& share, std::span<const float> logits) {
  Sequence& s = *share.sequence;
  Lane& lane = *s.lane;
  const auto drawn = lane.drawn();
  const int right = base::IntSize(drawn) - 1;
  s.cache.SetLength(s.cache.length() - share.draft + right);
  if (share.answers()) kept_ += right + 1;
  s.computed_to = std::max(s.computed_to, s.cache.length());
  const std::size_t vocab = transformer_.config().vocab_size;
  for (std::size_t i = 0; i < drawn.size() && share.why == Stop::kNone; ++i)
    share.why = answers_.Give(s, lane.sampler(), drawn[i], logits.subspan(i * vocab, vocab));
  if (share.draft > 0 && !lane.forced()) {
    const SpecUsage usage{.drafts = 1, .draft_tokens = share.draft, .accepted_tokens = right};
    s.usage.spec += usage;
    drafted_ += usage;
  }
  lane.Judge(record_);
  share.sampling_s = lane.sampler().TakeSeconds();
}

Lane& SharedLoop::LaneOf(Sequence& s) {
  if (s.lane != nullptr) return *s.lane;
  if (free_lanes_.empty())
    free_lanes_.push_back(std::make_unique<Lane>(transformer_.config().vocab_size, capacity_));
  s.lane = std::move(free_lanes_.back());
  free_lanes_.pop_back();
  const auto tokens = std::span<const int>(s.tokens);
  const std::size_t prompt = s.job.request.prompt.size();
  s.lane->Begin(s.job.request.sampling, tokens.first(prompt), tokens.subspan(prompt),
                DraftsMax(s.job.request));
  return *s.lane;
}

int SharedLoop::DraftsMax(const Request& request) const {
  if (request.spec_mode == SpecMode::kOff) return 0;
  return request.spec_tokens >= 0 ? std::min(request.spec_tokens, drafts_max_) : drafts_max_;
}

void SharedLoop::Draft(Share& share, int most, double needed) {
  Sequence& s = *share.sequence;
  const int room = std::min(answers_.Wanted(s) - 1, capacity_ - s.cache.length() - 2);
  Lane& lane = LaneOf(s);
  lane.Propose(s.tokens, std::min(most, room), needed, record_);
  share.draft = base::IntSize(lane.draft());
}

void SharedLoop::Leave(Sequence& s) {
  if (s.lane == nullptr) return;
  s.lane->End();
  free_lanes_.push_back(std::move(s.lane));
}

void SharedLoop::Count(std::span<const Share> shares, const StepTimer& timer) {
  int answering = 0, read = 0;
  const double seconds = timer.elapsed();
  for (const Share& share : shares) {
    Usage& usage = share.sequence->usage;
    const bool answers = share.answers();
    (answers ? answering : read) += share.tokens();
    const bool prompt = !answers && share.read.at < share.sequence->prompt_tokens();
    (prompt ? usage.prefill_s : usage.decode_s) += seconds;
  }
  StepCounters* const counters = answers_.counters();
  if (counters == nullptr) return;
  timer.Stop(*counters, read > 0 ? counters->prefill : counters->decode, answering + read);
  counters->shared_steps += 1;
  counters->shared_answers += answering;
  counters->shared_read += read;
}

}  // namespace thermocline::sched
