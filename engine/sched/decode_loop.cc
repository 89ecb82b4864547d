#include "engine/sched/decode_loop.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/sampling/score.h"
#include "engine/spec/set_up.h"

namespace thermocline::sched {
namespace {

using exec::Transformer;

// A turn's share of a prompt token, in decoded ones: a batch reads the weights once.
constexpr double kPromptTokenShare = 1.0 / 8;

// Counts a step and its time.
class StepTimer {
 public:
  StepTimer() : begin_(SteadyClock::now()) {}
  // The end of a step that computed `tokens` tokens.
  void Stop(StepCounters& steps, StepCounters::Seconds& phase, int tokens) const {
    phase.Add(Seconds(SteadyClock::now() - begin_));
    steps.tokens.Add(tokens);
    const auto unix_time = std::chrono::system_clock::now().time_since_epoch();
    steps.last_end_s.store(std::chrono::duration<double>(unix_time).count(),
                           std::memory_order_relaxed);
  }

 private:
  const SteadyClock::time_point begin_;
};

Status GrammarFailure(const char* why) {
  return base::FailedPrecondition(
      "the answer cannot go on as its grammar or schema says: ",
      why != nullptr ? why : "no token of the model's vocabulary can follow");
}

}  // namespace

DecodeLoop::DecodeLoop(const Params& p)
    : transformer_(p.transformer),
      cache_(p.cache),
      prefixes_(p.prefixes),
      sampler_(p.sampler),
      decoder_(p.decoder),
      spec_mode_(p.spec_mode),
      spec_tokens_(p.spec_tokens),
      governor_(p.governor),
      tokenizer_(p.tokenizer),
      logits_max_(p.logits_max),
      heartbeat_(p.heartbeat),
      steps_(p.steps),
      on_end_(p.on_end),
      yield_(p.yield),
      short_steps_(p.short_steps),
      crowded_(p.crowded),
      make_room_(p.make_room) {}

TurnEnd DecodeLoop::Run(Sequence& s) {
  const auto begin = SteadyClock::now();
  error_ = {};
  spent_ = 0;
  first_ = true;
  if (!s.started) {
    s.usage.queue_s = Seconds(begin - s.job.submitted);
    s.usage.begun_at = begin;
  }
  cache_.Swap(s.cache);
  governor_.SetModes(s.modes);
  transformer_.SetOnWait([this, &s] { return GoesOn(s.job); });
  const bool new_prompt = s.usage.completion_tokens == 0;
  Stop why = s.job.request.embed.has_value() ? Embed(s) : ReadTokens(s);
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
      cache_.Clear();
      return TurnEnd::kNoMemory;
    default:
      Finish(s, why);
      return error_.kv_cache_lost ? TurnEnd::kCacheLost : TurnEnd::kFinished;
  }
}

void DecodeLoop::End(Sequence& s) {
  error_ = {};
  cache_.Swap(s.cache);
  Finish(s, Stop::kCancelled);
}

void DecodeLoop::Finish(Sequence& s, Stop why) {
  s.usage.ended_at = SteadyClock::now();
  Status& error = error_.status;
  const bool given_up = error.code() == StatusCode::kCancelled;  // by GoesOn, while waiting
  if (given_up) error = {};
  const bool cancelled = why == Stop::kCancelled;
  if (error.ok() && cancelled && !s.job.channel->cancelled())
    error = LateStatus(s.job, s.usage, cache_.length(), given_up);
  const bool lost = error_.kv_cache_lost;
  if (prefixes_ != nullptr && lost) prefixes_->Clear();
  // Keys and values of tokens that were decoded with loss are no other request's: it would get what
  // no prompt gives.
  const auto kept = std::min({static_cast<std::size_t>(cache_.length()), s.tokens.size(),
                              s.lossless ? s.tokens.size() : s.job.request.prompt.size()});
  if (!s.tokens.empty()) cache_.SetLength(static_cast<int>(kept));
  if (prefixes_ != nullptr && !lost && !s.tokens.empty())
    prefixes_->Keep(std::span(s.tokens).first(kept), cache_);
  cache_.Clear();
  if (on_end_) on_end_();
  const std::string rest = s.text.Finish();
  s.usage.stop = s.text.stop();
  if (cancelled) return FinishEarly(s.job, s.usage, rest, error);
  s.job.channel->Finish(why == Stop::kStop ? FinishReason::kStop : FinishReason::kLength, rest,
                        s.usage);
}

bool DecodeLoop::GoesOn(const Job& job) const {
  if (heartbeat_ != nullptr) heartbeat_->fetch_add(1, std::memory_order_relaxed);
  return !job.channel->cancelled() && !IsLate(job, SteadyClock::now());
}

// What is looked at before a step that computes `tokens` tokens, which must fit the cache.
DecodeLoop::Stop DecodeLoop::BeforeStep(Sequence& s, int tokens) {
  if (!GoesOn(s.job)) return Stop::kCancelled;
  if (yield_ && !first_ && yield_(spent_)) return Stop::kYielded;
  first_ = false;
  if (make_room_ && !make_room_(cache_.BlocksWanted(tokens))) return Stop::kNoMemory;
  return Stop::kNone;
}

// Reads the texts one by one and gives their vectors.
DecodeLoop::Stop DecodeLoop::Embed(Sequence& s) {
  const Request& request = s.job.request;
  const EmbedRequest& embed = *request.embed;
  const int size = transformer_.config().hidden_size;
  s.usage.phase = Phase::kPrefill;
  for (; s.embedded < embed.ends.size(); ++s.embedded) {
    const int begin = s.embedded == 0 ? 0 : embed.ends[s.embedded - 1];
    const int length = embed.ends[s.embedded] - begin;
    while (cache_.length() < length) {
      const int at = cache_.length(), count = std::min(transformer_.tokens_max(), length - at);
      if (at == 0) s.pooling.Begin(embed.pooling, size);  // again, if its memory was taken
      const Stop why = BeforeStep(s, count);
      if (why != Stop::kNone) return why;
      const StepTimer timer;
      const auto tokens = std::span<const int>(request.prompt).subspan(begin + at, count);
      const auto computed = transformer_.Forward(tokens, cache_, Transformer::Logits::kNone,
                                                 Transformer::Step::kPrefill);
      if (!computed.ok()) {
        error_ = computed.error();
        return Stop::kCancelled;
      }
      s.pooling.Add(transformer_.HiddenStates(count));
      if (steps_ != nullptr) timer.Stop(*steps_, steps_->prefill, count);
      s.usage.read_tokens = begin + cache_.length();
      spent_ += count * kPromptTokenShare;
    }
    s.job.channel->PushEmbedding(s.pooling.Take());
    cache_.Clear();
  }
  return Stop::kLength;
}

// Computes what the next token needs, and, behind the prompt, the first token.
DecodeLoop::Stop DecodeLoop::ReadTokens(Sequence& s) {
  if (cache_.length() == 0) Find(s);
  std::span<const float> logits;
  while (cache_.length() < s.wanted()) {
    const Stop why = ReadChunk(s, logits);
    if (why != Stop::kNone) return why;
  }
  if (s.usage.completion_tokens > 0) {
    BeginDecoding(s);
    return Stop::kNone;
  }
  if (s.job.request.prompt_logprobs) s.job.channel->PushPromptScores(std::move(s.prompt_scores));
  if (s.job.request.share_prompt && prefixes_ != nullptr) prefixes_->Keep(s.tokens, cache_);
  if (s.job.request.prompt_only) return Stop::kLength;
  s.usage.phase = Phase::kDecode;
  BeginDecoding(s);
  const Stop why = Give(s, decoder_.First(logits), logits);
  if (why != Stop::kNone) decoder_.End();
  return why;
}

// What earlier requests left of these tokens.
void DecodeLoop::Find(Sequence& s) {
  const bool whole = s.job.request.prompt_logprobs && s.usage.completion_tokens == 0;
  if (whole) s.prompt_scores.clear();  // a part may have been read before its memory was taken
  int found = 0;
  if (prefixes_ != nullptr && !whole) {
    // Tokens that were decoded with loss are not found: see Finish.
    const auto usable = s.lossless ? s.tokens.size() : s.job.request.prompt.size();
    // The last token is never looked for; here the one before it may be.
    const bool behind = s.usage.completion_tokens > 0 && !s.lossless;
    found =
        prefixes_->Find(std::span<const int>(s.tokens).first(usable + (behind ? 1 : 0)), cache_);
  }
  if (!s.started) {
    s.usage.cached_tokens = found;
    s.computed_to = found;
  }
}

// Tokens of the next step through what is not computed yet.
int DecodeLoop::ChunkOf(const Sequence& s) const {
  const int at = cache_.length(), prompt = s.prompt_tokens();
  const bool generated = at >= prompt && !s.lossless;
  const int limit = at < prompt ? std::min(s.wanted(), prompt) : s.wanted();
  // Of a prompt's step while others wait.
  constexpr int kShort = 64;
  int most = transformer_.tokens_max();
  if (short_steps_ && most > kShort && crowded_ && crowded_()) most = kShort;
  if (generated) most = 1;  // as they were decoded: with loss
  if (s.job.request.prompt_logprobs && at < prompt) most = std::min(most, logits_max_);
  return std::min(most, limit - at);
}

DecodeLoop::Stop DecodeLoop::ReadChunk(Sequence& s, std::span<const float>& logits) {
  const int at = cache_.length(), count = ChunkOf(s);
  const Stop why = BeforeStep(s, count);
  if (why != Stop::kNone) return why;
  if (s.usage.phase == Phase::kQueued) s.usage.phase = Phase::kPrefill;
  const auto tokens = std::span<const int>(s.tokens).subspan(at, count);
  const bool score = s.job.request.prompt_logprobs && s.usage.completion_tokens == 0;
  const bool last = s.usage.completion_tokens == 0 && at + count == s.wanted();
  const bool generated = at >= s.prompt_tokens() && !s.lossless;
  const StepTimer timer;
  const auto computed =
      transformer_.Forward(tokens, cache_,
                           score  ? Transformer::Logits::kAll
                           : last ? Transformer::Logits::kLast
                                  : Transformer::Logits::kNone,
                           generated ? Transformer::Step::kDecode : Transformer::Step::kPrefill);
  if (!computed.ok()) {
    error_ = computed.error();
    return Stop::kCancelled;
  }
  logits = *computed;
  if (steps_ != nullptr) {
    timer.Stop(*steps_, steps_->prefill, count);
    steps_->recomputed_tokens += std::clamp(s.computed_to - at, 0, count);
  }
  s.computed_to = std::max(s.computed_to, cache_.length());
  if (s.usage.completion_tokens == 0) s.usage.read_tokens = s.computed_to - s.usage.cached_tokens;
  spent_ += count * kPromptTokenShare;
  if (score) ScorePrompt(s, tokens, logits);
  if (score && last) logits = logits.last(logits.size() / tokens.size());
  if (s.usage.completion_tokens == 0 && (s.job.request.progress || last))
    s.job.channel->Read(cache_.length(), s.usage.cached_tokens, s.job.request.progress);
  return Stop::kNone;
}

// `logits` [T, V] say what comes behind each of `tokens`, the last that were computed.
void DecodeLoop::ScorePrompt(Sequence& s, std::span<const int> tokens,
                             std::span<const float> logits) {
  const std::size_t vocab = logits.size() / tokens.size();
  const auto first = cache_.length() - tokens.size();
  const int top = std::max(0, s.job.request.logprobs);
  for (std::size_t i = 0; i < tokens.size() && first + i + 1 < s.tokens.size(); ++i)
    sampling::ScoreToken(logits.subspan(i * vocab, vocab), s.tokens[first + i + 1], top,
                         s.prompt_scores);
}

void DecodeLoop::BeginDecoding(const Sequence& s) {
  const Request& request = s.job.request;
  const auto prompt = std::span<const int>(s.tokens).first(request.prompt.size());
  const auto generated = std::span<const int>(s.tokens).subspan(prompt.size());
  sampler_.Begin(request.sampling, prompt);
  for (const int token : generated) sampler_.Accept(token);
  const auto mode =
      request.spec_mode.empty() ? Result<SpecMode>(spec_mode_) : ParseSpecMode(request.spec_mode);
  const int asked =
      request.spec_tokens >= 0 ? std::min(request.spec_tokens, spec_tokens_) : spec_tokens_;
  const bool dense = std::all_of(s.modes.begin(), s.modes.end(),
                                 [](FfnMode each) { return each == FfnMode::kDense; });
  const int verified =
      dense && transformer_.StepsOfAnyLength() ? kDraftTokensMax : kSparseDraftTokensMax;
  decoder_.Begin(prompt, mode.ok() ? *mode : spec_mode_,  // Submit has checked it
                 std::min(asked, verified), generated, std::min(verified, logits_max_ - 1));
}

DecodeLoop::Stop DecodeLoop::Decode(Sequence& s) {
  decoder_.SetOnWait([this, &s] { return GoesOn(s.job); });
  Stop why = Stop::kNone;
  while (why == Stop::kNone) why = Step(s);
  decoder_.End();
  decoder_.SetOnWait({});
  s.usage.spec += decoder_.usage();
  return why;
}

DecodeLoop::Stop DecodeLoop::Step(Sequence& s) {
  if (s.job.channel->full()) return Stop::kReaderSlow;
  const int wanted = Wanted(s);
  const int room = cache_.capacity() - cache_.length();
  Stop why = BeforeStep(s, std::min(room, kDraftTokensMax + 1));
  if (why != Stop::kNone) return why;
  const StepTimer timer;
  const auto tokens = decoder_.Next(wanted);
  if (!tokens.ok()) {
    error_ = tokens.error();
    return Stop::kCancelled;
  }
  if (steps_ != nullptr) {
    const int computed = decoder_.computed();
    timer.Stop(*steps_, computed > 1 ? steps_->verify : steps_->decode, computed);
  }
  spent_ += static_cast<double>(tokens->size());
  for (std::size_t i = 0; i < tokens->size() && why == Stop::kNone; ++i)
    why = Give(s, (*tokens)[i], decoder_.row(i));
  s.computed_to = std::max(s.computed_to, cache_.length());
  if (why == Stop::kNone) governor_.AfterStep(base::IntSize(*tokens));
  return why;
}

DecodeLoop::Stop DecodeLoop::Give(Sequence& s, int token, std::span<const float> logits) {
  const Request& request = s.job.request;
  const auto& stops = request.stop_tokens;
  const auto behind = static_cast<std::size_t>(s.usage.completion_tokens) + 1;
  if (sampler_.IsLost(behind)) {
    error_ = {GrammarFailure(sampler_.failure())};
    return Stop::kCancelled;
  }
  if (tokenizer_.IsStop(token) && !request.ignore_eos) return Stop::kStop;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) return Stop::kStop;
  ++s.usage.completion_tokens;
  s.tokens.push_back(token);
  s.scores.clear();
  if (request.logprobs >= 0) sampling::ScoreToken(logits, token, request.logprobs, s.scores);
  const bool look = s.usage.completion_tokens > request.sampling.min_tokens;
  s.job.channel->Push(token, s.text.Push(token, look), s.scores);
  if (s.text.stopped() || sampler_.IsOver(behind)) return Stop::kStop;
  return Wanted(s) == 0 ? Stop::kLength : Stop::kNone;
}

int DecodeLoop::Wanted(const Sequence& s) const {
  const int room = cache_.capacity() - base::IntSize(s.tokens);
  const int max_tokens = s.job.request.max_tokens;
  return max_tokens == 0 ? room : std::min(room, max_tokens - s.usage.completion_tokens);
}

}  // namespace thermocline::sched
