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

double SharedLoop::Run(std::span<SequenceStep> steps) {
  const StepTimer timer;
  governor_.SetModes(steps.front().sequence->modes);
  for (const SequenceStep& step : steps) {
    Sequence& s = *step.sequence;
    s.error = {};
    if (s.usage.phase == Phase::kQueued) s.usage.phase = Phase::kPrefill;
    if (std::exchange(s.started, true)) continue;
    s.usage.begun_at = SteadyClock::now();
    s.usage.queue_s = Seconds(s.usage.begun_at - s.job.submitted);
  }
  const auto logits = Forward(steps);
  if (logits.ok()) {
    SplitLogits(steps, *logits);
    DrawAll();
    for (const Draw& draw : draws_) EmitTokens(*draw.step, draw.logits);
    if (step_ != Transformer::Step::kDecode) transformer_.CountKept(kept_);
    governor_.AfterStep(base::IntSize(draws_));
  } else {
    for (SequenceStep& step : steps) {
      step.sequence->error = logits.error();
      step.why = Stop::kError;
    }
  }
  Count(steps, timer);
  return timer.elapsed();
}

exec::StepResult<std::span<const float>> SharedLoop::Forward(std::span<const SequenceStep> steps) {
  parts_.clear();
  step_tokens_.clear();
  step_tokens_.reserve(transformer_.tokens_max());  // parts refer to it, so it must not grow
  bool reads = false, decoded = false, verifies = false;
  for (const SequenceStep& step : steps) {
    Sequence& s = *step.sequence;
    if (step.answers()) {
      step_tokens_.push_back(s.tokens.back());
      if (step.draft == 0 && s.decoder != nullptr)
        s.decoder->DropDraft();  // drafted for a step that did not run
      if (step.draft > 0)
        step_tokens_.insert(step_tokens_.end(), s.decoder->draft().begin(),
                            s.decoder->draft().end());
      parts_.push_back({std::span(step_tokens_).last(step.tokens()), &s.cache, step.tokens()});
      decoded = true;
      verifies = verifies || step.draft > 0;
    } else {
      parts_.push_back({step.read.tokens, &s.cache, step.read.rows()});
      reads = true;
    }
    CHECK(!(reads && decoded) || s.lossless);
  }
  transformer_.SetOnWait([&] {
    return std::any_of(steps.begin(), steps.end(), [this](const SequenceStep& step) {
      return answers_.ShouldContinue(step.sequence->job);
    });
  });
  kept_ = 0;
  step_ = reads ? (decoded ? Transformer::Step::kMixed : Transformer::Step::kPrefill)
                : (verifies ? Transformer::Step::kVerify : Transformer::Step::kDecode);
  auto logits = transformer_.ForwardParts(parts_, step_, step_ == Transformer::Step::kPrefill);
  transformer_.SetOnWait({});
  return logits;
}

// Splits the step's logits by sequence and lists the tokens to draw.
void SharedLoop::SplitLogits(std::span<SequenceStep> steps, std::span<const float> logits) {
  draws_.clear();
  const std::size_t vocab = transformer_.config().vocab_size;
  for (SequenceStep& step : steps) {
    Sequence& s = *step.sequence;
    const std::size_t rows = step.answers() ? step.tokens() : step.read.rows();
    const auto own = logits.first(rows * vocab);
    logits = logits.subspan(own.size());
    if (!step.answers()) {
      step.why = answers_.EndChunk(s, s.cache, step.read, own);
      if (!step.read.last || step.why != Stop::kNone) continue;
      step.why = answers_.EndPrompt(s, s.cache);
      if (step.why != Stop::kNone) continue;
    }
    DecoderOf(s);
    draws_.push_back({&step, step.answers() ? own : own.last(vocab)});
  }
}

void SharedLoop::DrawAll() {
  while (base::IntSize(scratch_) < pool_.threads())
    scratch_.push_back(
        std::make_unique<sampling::SamplerScratch>(transformer_.config().vocab_size));
  pool_.Run(base::IntSize(draws_), [this](int i, int thread) {
    const Draw& draw = draws_[i];
    Sequence& s = *draw.step->sequence;
    s.decoder->Draw(draw.logits, base::IntSize(s.tokens), *scratch_[thread]);
  });
}

bool SharedLoop::MakeMask(Sequence& s) {
  return s.job.request.sampling.constraint == nullptr || DecoderOf(s).MakeMask();
}

void SharedLoop::MakeMasks(std::span<Sequence* const> sequences, double seconds) {
  masks_.clear();
  for (Sequence* s : sequences)
    if (s->job.request.sampling.constraint != nullptr) masks_.push_back(&DecoderOf(*s));
  const int count = base::IntSize(masks_);
  for (int i = RunFor(pool_, count, seconds, [this](int at) { masks_[at]->MakeMask(); }); i < count;
       ++i)
    masks_[i]->PostponeMask();
}

void SharedLoop::EmitTokens(SequenceStep& step, std::span<const float> logits) {
  Sequence& s = *step.sequence;
  SequenceDecoder& decoder = *s.decoder;
  const auto drawn = decoder.drawn();
  const int right = base::IntSize(drawn) - 1;
  s.cache.SetLength(s.cache.length() - step.draft + right);
  if (step.answers()) kept_ += right + 1;
  s.computed_to = std::max(s.computed_to, s.cache.length());
  const std::size_t vocab = transformer_.config().vocab_size;
  for (std::size_t i = 0; i < drawn.size() && step.why == Stop::kNone; ++i)
    step.why = answers_.EmitToken(s, decoder.sampler(), drawn[i], logits.subspan(i * vocab, vocab));
  if (step.draft > 0 && !decoder.forced()) {
    const SpecUsage usage{.drafts = 1, .draft_tokens = step.draft, .accepted_tokens = right};
    s.usage.spec += usage;
    drafted_ += usage;
  }
  decoder.RecordAccepted(record_);
  step.sampling_s = decoder.sampler().TakeSeconds();
}

SequenceDecoder& SharedLoop::DecoderOf(Sequence& s) {
  if (s.decoder != nullptr) return *s.decoder;
  if (free_decoders_.empty())
    free_decoders_.push_back(
        std::make_unique<SequenceDecoder>(transformer_.config().vocab_size, capacity_));
  s.decoder = std::move(free_decoders_.back());
  free_decoders_.pop_back();
  const auto tokens = std::span<const int>(s.tokens);
  const std::size_t prompt = s.job.request.prompt.size();
  s.decoder->Begin(s.job.request.sampling, tokens.first(prompt), tokens.subspan(prompt),
                   DraftsMax(s.job.request));
  return *s.decoder;
}

int SharedLoop::DraftsMax(const Request& request) const {
  if (request.spec_mode == SpecMode::kOff) return 0;
  return request.spec_tokens >= 0 ? std::min(request.spec_tokens, drafts_max_) : drafts_max_;
}

void SharedLoop::Draft(SequenceStep& step, int most, double needed) {
  Sequence& s = *step.sequence;
  const int room = std::min(answers_.TokensLeft(s) - 1, capacity_ - s.cache.length() - 2);
  SequenceDecoder& decoder = DecoderOf(s);
  decoder.Propose(s.tokens, std::min(most, room), needed, record_);
  step.draft = base::IntSize(decoder.draft());
}

void SharedLoop::ReleaseDecoder(Sequence& s) {
  if (s.decoder == nullptr) return;
  s.decoder->End();
  free_decoders_.push_back(std::move(s.decoder));
}

void SharedLoop::Count(std::span<const SequenceStep> steps, const StepTimer& timer) {
  int answering = 0, read = 0;
  const double seconds = timer.elapsed();
  for (const SequenceStep& step : steps) {
    Usage& usage = step.sequence->usage;
    const bool answers = step.answers();
    (answers ? answering : read) += step.tokens();
    const bool prompt = !answers && step.read.at < step.sequence->prompt_tokens();
    (prompt ? usage.prefill_s : usage.decode_s) += seconds;
  }
  StepCounters* const counters = answers_.counters();
  if (counters == nullptr) return;
  timer.Stop(*counters, read > 0 ? counters->prefill : counters->decode, answering + read);
  counters->shared_steps += 1;
  counters->shared_decode_tokens += answering;
  counters->shared_prefill_tokens += read;
}

}  // namespace thermocline::sched
