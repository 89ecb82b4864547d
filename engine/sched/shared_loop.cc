#include "engine/sched/shared_loop.h"

#include <algorithm>
#include <utility>

#include "engine/base/index.h"
#include "engine/spec/verify.h"

namespace thermocline::sched {

using exec::Transformer;

SharedLoop::SharedLoop(const Params& p)
    : transformer_(p.transformer),
      pool_(p.pool),
      answers_(p.answers),
      governor_(p.governor),
      capacity_(p.capacity) {}

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
    for (const Draw& draw : draws_) {
      Sequence& s = *draw.share->sequence;
      s.sampler->Accept(draw.token);
      draw.share->why = answers_.Give(s, *s.sampler, draw.token, draw.logits);
      s.computed_to = std::max(s.computed_to, s.cache.length());
    }
    governor_.AfterStep(base::IntSize(draws_));
  } else {
    for (Share& share : shares) {
      share.sequence->error = logits.error();
      share.why = Stop::kCancelled;
    }
  }
  Count(shares, timer);
  return timer.elapsed();
}

exec::StepResult<std::span<const float>> SharedLoop::Forward(std::span<const Share> shares) {
  parts_.clear();
  bool reads = false, decoded = false;
  for (const Share& share : shares) {
    Sequence& s = *share.sequence;
    if (share.read.tokens.empty()) {
      parts_.push_back({std::span<const int>(s.tokens).last(1), &s.cache, 1});
      decoded = true;
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
  auto logits = transformer_.ForwardParts(
      parts_, reads ? Transformer::Step::kPrefill : Transformer::Step::kDecode);
  transformer_.SetOnWait({});
  return logits;
}

// From the step's logits to what is drawn of them.
void SharedLoop::Take(std::span<Share> shares, std::span<const float> logits) {
  draws_.clear();
  const std::size_t vocab = transformer_.config().vocab_size;
  for (Share& share : shares) {
    Sequence& s = *share.sequence;
    const bool answers = share.read.tokens.empty();
    const std::size_t rows = answers ? 1 : share.read.rows();
    const auto own = logits.first(rows * vocab);
    logits = logits.subspan(own.size());
    if (!answers) {
      answers_.Read(s, s.cache, share.read, own);
      if (!share.read.last) continue;
      share.why = answers_.EndPrompt(s, s.cache);
      if (share.why != Stop::kNone) continue;
    }
    Join(s);
    draws_.push_back({&share, own.last(vocab)});
  }
}

void SharedLoop::DrawAll() {
  while (base::IntSize(scratch_) < pool_.threads())
    scratch_.push_back(
        std::make_unique<sampling::SamplerScratch>(transformer_.config().vocab_size));
  pool_.Run(base::IntSize(draws_), [this](int i, int thread) {
    Draw& draw = draws_[i];
    const Sequence& s = *draw.share->sequence;
    s.sampler->UseScratch(*scratch_[thread]);
    draw.token =
        spec::Choose(s.sampler->Compute(draw.logits), s.sampler->chance(), s.tokens.size());
  });
}

void SharedLoop::Join(Sequence& s) {
  if (s.sampler != nullptr) return;
  if (free_samplers_.empty())
    free_samplers_.push_back(std::make_unique<sampling::Sampler>(transformer_.config().vocab_size,
                                                                 capacity_, /*own_scratch=*/false));
  s.sampler = std::move(free_samplers_.back());
  free_samplers_.pop_back();
  const auto tokens = std::span<const int>(s.tokens);
  const auto prompt = tokens.first(s.job.request.prompt.size());
  s.sampler->Begin(s.job.request.sampling, prompt);
  for (const int token : tokens.subspan(prompt.size())) s.sampler->Accept(token);
}

void SharedLoop::Leave(Sequence& s) {
  if (s.sampler == nullptr) return;
  s.sampler->Begin({}, {});  // a grammar is held no longer
  free_samplers_.push_back(std::move(s.sampler));
}

void SharedLoop::Count(std::span<const Share> shares, const StepTimer& timer) {
  int answering = 0, read = 0;
  const double seconds = timer.elapsed();
  for (const Share& share : shares) {
    Usage& usage = share.sequence->usage;
    const bool answers = share.read.tokens.empty();
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
