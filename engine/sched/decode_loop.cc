#include "engine/sched/decode_loop.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/base/stopwatch.h"
#include "engine/spec/set_up.h"

namespace thermocline::sched {

using exec::Transformer;

namespace {

// The time that counts as a decoded token of an encoder, which has none.
constexpr double kEncoderTokenS = 0.005;

}  // namespace

DecodeLoop::DecodeLoop(const Params& p)
    : transformer_(p.transformer),
      cache_(p.cache),
      answers_(p.answers),
      steps_(p.answers.counters()),
      sampler_(p.sampler),
      decoder_(p.decoder),
      spec_mode_(p.spec_mode),
      spec_tokens_(p.spec_tokens),
      governor_(p.governor),
      logits_max_(p.logits_max),
      yield_(p.yield),
      short_steps_(p.short_steps),
      crowded_(p.crowded),
      token_s_(p.token_s),
      make_room_(p.make_room),
      vectors_({.transformer = p.transformer,
                .cache = p.cache,
                .steps = steps_,
                .before_step = [this](Sequence& s, int tokens) { return BeforeStep(s, tokens); },
                .wanted = [this](const Sequence& s) { return answers_.ShouldContinue(s.job); },
                .tokens_max = [this] { return PrefillTokensMax(); },
                .charge = [this](int tokens, double s) { ChargePrefill(tokens, s); },
                .charge_encoder = [this](double s) { spent_ += s / kEncoderTokenS; }}) {}

TurnEnd DecodeLoop::Run(Sequence& s) {
  const auto begin = SteadyClock::now();
  s.error = {};
  spent_ = 0;
  first_ = true;
  if (!s.started) {
    s.usage.queue_s = Seconds(begin - s.job.submitted);
    s.usage.begun_at = begin;
  }
  cache_.Swap(s.cache);
  governor_.SetModes(s.modes);
  transformer_.SetOnWait([this, &s] { return answers_.ShouldContinue(s.job); });
  const bool new_prompt = s.usage.completion_tokens == 0;
  Stop why = s.job.request.embed.has_value() ? vectors_.Send(s) : Prefill(s);
  const auto read = SteadyClock::now();
  (new_prompt ? s.usage.prefill_s : s.usage.decode_s) += Seconds(read - begin);
  if (why == Stop::kNone) why = Decode(s);
  s.usage.decode_s += Seconds(SteadyClock::now() - read);
  transformer_.SetOnWait({});
  s.started = true;
  switch (why) {
    case Stop::kYielded:
    case Stop::kReaderSlow:
      cache_.Swap(s.cache);
      return why == Stop::kYielded ? TurnEnd::kYielded : TurnEnd::kReaderSlow;
    case Stop::kNoMemory:
      answers_.Suspend(s, cache_);
      return TurnEnd::kNoMemory;
    default:
      answers_.Finish(s, cache_, why);
      return s.error.kv_cache_lost ? TurnEnd::kCacheLost : TurnEnd::kFinished;
  }
}

// Decides whether to continue before a step that computes `tokens` tokens, which must fit the
// cache.
Stop DecodeLoop::BeforeStep(Sequence& s, int tokens) {
  return BeforeStep(s, cache_.BlocksWanted(tokens));
}

// Steps of vectors and of prompt scores take as long as several of answers, and cannot be shared
// with them: vectors are of all tokens, and scores need the logits of each. Other requests get
// their turn after each, but not between the parts of a text that the same client wants.
TurnOrder::Turn DecodeLoop::TurnOf(const Sequence& s) {
  const Request& request = s.job.request;
  if (s.text_progress.begun()) return TurnOrder::Turn::kEndsForOthers;
  const bool scores = request.prompt_logprobs && s.usage.completion_tokens == 0;
  return request.embed.has_value() || scores ? TurnOrder::Turn::kEnds : TurnOrder::Turn::kLasts;
}

// The same before a step that takes `blocks`.
Stop DecodeLoop::BeforeStep(Sequence& s, const nn::KvCount& blocks) {
  if (!answers_.ShouldContinue(s.job)) return Stop::kCancelled;
  if (yield_ && !first_ && yield_(spent_, TurnOf(s))) return Stop::kYielded;
  first_ = false;
  if (make_room_ && !make_room_(blocks)) return Stop::kNoMemory;
  return Stop::kNone;
}

// Computes the tokens that the next one depends on and, at the end of the prompt, the first token
// of the answer.
Stop DecodeLoop::Prefill(Sequence& s) {
  if (cache_.length() == 0) answers_.RestorePrefix(s, cache_);
  while (s.restoring.has_value()) {
    const Stop why = BeforeStep(s, prefix::FlashPrefixes::Wanted(*s.restoring));
    if (why != Stop::kNone) return why;
    if (s.usage.phase == Phase::kQueued) s.usage.phase = Phase::kPrefill;
    const base::Stopwatch watch;
    answers_.Restore(s, cache_);
    ChargePrefill(0, watch.Seconds());
  }
  std::span<const float> logits;
  while (cache_.length() < s.wanted()) {
    const Stop why = PrefillChunk(s, logits);
    if (why != Stop::kNone) return why;
  }
  if (s.usage.completion_tokens > 0) {
    BeginDecoding(s);
    return Stop::kNone;
  }
  Stop why = answers_.EndPrompt(s, cache_);
  if (why != Stop::kNone) return why;
  BeginDecoding(s);
  why = answers_.EmitToken(s, sampler_, decoder_.First(logits), logits);
  if (why != Stop::kNone) decoder_.End();
  return why;
}

// Returns the maximum tokens of a prefill step.
int DecodeLoop::PrefillTokensMax() const {
  constexpr int kShort = 64;  // while others wait
  const int most = transformer_.tokens_max();
  return short_steps_ && most > kShort && crowded_ && crowded_() ? kShort : most;
}

// Short texts, and logits of every token, cost many times the usual time of prefill per token, so
// the measured time counts.
void DecodeLoop::ChargePrefill(int tokens, double seconds) {
  const double token_s = token_s_ ? token_s_() : 0;
  spent_ += std::max(tokens * kPromptTokenShare, token_s > 0 ? seconds / token_s : 0);
}

Stop DecodeLoop::PrefillChunk(Sequence& s, std::span<const float>& logits) {
  constexpr int kScoredShare = 4;  // share of a step's tokens, because each needs logits too
  const int most = PrefillTokensMax(), all = transformer_.tokens_max();
  const bool scored = s.job.request.prompt_logprobs && most < all;
  const AnswerSteps::Chunk chunk =
      answers_.NextChunk(s, cache_, scored ? most / kScoredShare : most);
  const int count = base::IntSize(chunk.tokens);
  const Stop why = BeforeStep(s, count);
  if (why != Stop::kNone) return why;
  if (s.usage.phase == Phase::kQueued) s.usage.phase = Phase::kPrefill;
  const StepTimer timer;
  const auto computed = transformer_.Forward(
      chunk.tokens, cache_,
      chunk.score  ? Transformer::Logits::kAll
      : chunk.last ? Transformer::Logits::kLast
                   : Transformer::Logits::kNothing,
      chunk.generated ? Transformer::Step::kVerify : Transformer::Step::kPrefill);
  if (!computed.ok()) {
    s.error = computed.error();
    return Stop::kError;
  }
  // These tokens were decoded, and counted, before their memory was reclaimed.
  if (chunk.generated) transformer_.EndVerify(count);
  logits = *computed;
  if (steps_ != nullptr) timer.Stop(*steps_, steps_->prefill, count);
  const Stop read = answers_.EndChunk(s, cache_, chunk, logits);
  ChargePrefill(count, timer.elapsed());
  if (chunk.score && chunk.last) logits = logits.last(logits.size() / chunk.tokens.size());
  return read;
}

void DecodeLoop::BeginDecoding(const Sequence& s) {
  const Request& request = s.job.request;
  const auto prompt = std::span<const int>(s.tokens).first(request.prompt.size());
  const auto generated = std::span<const int>(s.tokens).subspan(prompt.size());
  sampler_.Begin(request.sampling, prompt);
  for (const int token : generated) sampler_.Accept(token);
  const int asked =
      request.spec_tokens >= 0 ? std::min(request.spec_tokens, spec_tokens_) : spec_tokens_;
  const bool dense = std::all_of(s.modes.layers.begin(), s.modes.layers.end(),
                                 [](FfnMode each) { return each == FfnMode::kDense; });
  const int verified =
      dense && transformer_.StepsOfAnyLength() ? kDraftTokensMax : kSparseDraftTokensMax;
  decoder_.Begin(prompt, request.spec_mode.value_or(spec_mode_), std::min(asked, verified),
                 generated, std::min(verified, logits_max_ - 1));
}

Stop DecodeLoop::Decode(Sequence& s) {
  decoder_.SetOnWait([this, &s] { return answers_.ShouldContinue(s.job); });
  Stop why = Stop::kNone;
  while (why == Stop::kNone) why = Step(s);
  decoder_.End();
  decoder_.SetOnWait({});
  s.usage.spec += decoder_.usage();
  return why;
}

// Returns the tokens that a step is charged as: more if masks and sampling, which only some
// requests need, took much of its time.
double DecodeLoop::Spent(int tokens, double seconds) {
  const double sampling = sampler_.TakeSeconds();
  const double others = std::max(seconds - sampling, seconds / 64);
  return others > 0 ? tokens * seconds / others : tokens;
}

Stop DecodeLoop::Step(Sequence& s) {
  if (s.job.channel->full()) return Stop::kReaderSlow;
  const int wanted = answers_.TokensLeft(s);
  const int room = cache_.capacity() - cache_.length();
  Stop why = BeforeStep(s, std::min(room, kDraftTokensMax + 1));
  if (why != Stop::kNone) return why;
  const StepTimer timer;
  const auto tokens = decoder_.Next(wanted);
  if (!tokens.ok()) {
    s.error = tokens.error();
    return Stop::kError;
  }
  if (steps_ != nullptr) {
    const int computed = decoder_.computed();
    timer.Stop(*steps_, computed > 1 ? steps_->verify : steps_->decode, computed);
  }
  spent_ += Spent(base::IntSize(*tokens), timer.elapsed());
  for (std::size_t i = 0; i < tokens->size() && why == Stop::kNone; ++i)
    why = answers_.EmitToken(s, sampler_, (*tokens)[i], decoder_.row(i));
  s.computed_to = std::max(s.computed_to, cache_.length());
  if (why == Stop::kNone) governor_.AfterStep(base::IntSize(*tokens));
  return why;
}

}  // namespace thermocline::sched
