#include "engine/sched/answer_steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/base/stopwatch.h"
#include "engine/sampling/score.h"

namespace thermocline::sched {
namespace {

Status GrammarFailure(const char* why) {
  return base::FailedPrecondition(
      "the answer cannot go on as its grammar or schema says: ",
      why != nullptr ? why : "no token of the model's vocabulary can follow");
}

// The error of a sequence whose numbers are no numbers, because the model's weights are damaged.
Status NotANumber(const char* what) {
  return base::DataLoss("the model computes ", what,
                        " that are not numbers: its file is damaged or not of this model");
}

// Returns the next position after `at` in the prompt where a snapshot is kept; 0 if there is none.
int NextMark(const Sequence& s, const nn::KvCache& cache, int at) {
  constexpr int kEvery = 4096;  // tokens
  if (!cache.pool().states().layout().any() || s.job.request.embed.has_value()) return 0;
  int next = (at / kEvery + 1) * kEvery;
  for (const int mark : s.marks)
    if (mark > at) next = std::min(next, mark);
  return next <= s.prompt_tokens() ? next : 0;
}

// Returns true if `ms` milliseconds have passed since `begin`, which is set to now if it is empty.
// Always false if ms is 0 (no limit).
bool IsOver(std::optional<SteadyClock::time_point>& begin, double ms) {
  if (ms <= 0) return false;
  if (!begin.has_value()) begin = SteadyClock::now();
  return Seconds(SteadyClock::now() - *begin) * 1000 >= ms;
}

}  // namespace

void StepTimer::Stop(StepCounters& steps, StepCounters::Seconds& phase, int tokens) const {
  phase.Add(elapsed());
  steps.tokens.Add(tokens);
  const auto unix_time = std::chrono::system_clock::now().time_since_epoch();
  steps.last_end_s.store(std::chrono::duration<double>(unix_time).count(),
                         std::memory_order_relaxed);
}

bool AnswerSteps::ShouldContinue(const Job& job) const {
  if (p_.heartbeat != nullptr) p_.heartbeat->fetch_add(1, std::memory_order_relaxed);
  return !job.channel->cancelled() && !IsLate(job, SteadyClock::now());
}

void AnswerSteps::RestorePrefix(Sequence& s, nn::KvCache& cache) const {
  const bool whole = s.job.request.prompt_logprobs && s.usage.completion_tokens == 0;
  if (whole)
    s.prompt_scores.clear();  // a part may have been computed before its memory was reclaimed
  int found = 0;
  (void)IsOver(s.prefill_since, s.job.request.prompt_ms_max);
  if (p_.prefixes != nullptr && !whole) {
    // Tokens that were decoded in a lossy mode are not looked up: see Finish.
    const auto usable = s.lossless ? s.tokens.size() : s.job.request.prompt.size();
    // The lookup never includes the last token; here it may include the one before it.
    const bool behind = s.usage.completion_tokens > 0 && !s.lossless;
    const auto tokens = std::span<const int>(s.tokens).first(usable + (behind ? 1 : 0));
    const std::string& owner = s.job.request.prefix_owner;
    (void)p_.prefixes->RestorePrefix(owner, tokens, cache);
    if (!s.started) SeeDifference(s);
    s.restoring.reset();
    if (p_.flash != nullptr && !s.flash_failed) s.restoring = p_.flash->Find(owner, tokens, cache);
    found = cache.length();
  }
  SetMarks(s, cache, whole);
  if (!s.started) {
    s.usage.cached_tokens = found;
    s.usage.flash_tokens = 0;  // those of a restoration that was given up do not count
    s.computed_to = found;
  }
}

void AnswerSteps::SeeDifference(Sequence& s) const {
  const int at = s.usage.cache_miss_at = p_.prefixes->differs_at();
  if (at < 0 || !p_.log_differences) return;
  constexpr int kSeen = static_cast<int>(nn::PrefixCache::kSeenTokens);
  const auto text = [&](std::span<const int> tokens) {
    return p_.tokenizer.Decode({tokens.begin(), tokens.end()}, true);
  };
  const auto tokens = std::span<const int>(s.tokens);
  const int before = std::min(at, kSeen), after = std::min(base::IntSize(tokens) - at, kSeen);
  base::LogInfo(
      "a prompt of ", tokens.size(), " tokens", s.job.request.tenant.empty() ? "" : " of tenant ",
      s.job.request.tenant, " differs from a cached one at token ", at, ": after '",
      text(tokens.subspan(at - before, before)), "' it has '", text(tokens.subspan(at, after)),
      "' instead of '", text(p_.prefixes->stored_instead()), "'");
}

void AnswerSteps::Restore(Sequence& s, nn::KvCache& cache) const {
  const base::Stopwatch watch;
  const auto progress = p_.flash->Restore(*s.restoring, cache);
  if (progress != prefix::FlashPrefixes::Progress::kMore) s.restoring.reset();
  if (progress == prefix::FlashPrefixes::Progress::kFailed) {
    s.flash_failed = true;
    if (cache.length() == 0) RestorePrefix(s, cache);
  }
  if (s.usage.completion_tokens > 0 || s.usage.prefill_tokens > 0) return;
  s.usage.flash_tokens += std::max(0, cache.length() - s.usage.cached_tokens);
  s.usage.cached_tokens = s.computed_to = cache.length();
  s.usage.restore_s += watch.Seconds();
}

void AnswerSteps::Keep(const Sequence& s, std::size_t tokens, const nn::KvCache& cache) const {
  const std::string& owner = s.job.request.prefix_owner;
  const auto kept = std::span<const int>(s.tokens).first(tokens);
  p_.prefixes->Keep(owner, kept, cache);
  if (p_.flash != nullptr) p_.flash->Keep(owner, kept, cache);
}

// Snapshots are kept where this prompt diverges from a cached one, where its own continuation will
// begin, and, in Next, at regular intervals. Source: the checkpoint positions of llama.cpp and
// SGLang.
void AnswerSteps::SetMarks(Sequence& s, const nn::KvCache& cache, bool whole) const {
  if (p_.prefixes == nullptr || !cache.pool().states().layout().any()) return;
  const int shared = whole ? 0 : p_.prefixes->shared();
  s.marks = {shared > cache.length() ? shared : 0, TailBegin(s.job.request.prompt)};
}

int AnswerSteps::TailBegin(const std::vector<int>& prompt) const {
  constexpr int kTailMax = 64;  // tokens
  const auto& types = p_.tokenizer.vocabulary().types;
  const int last = base::IntSize(prompt) - 1;
  for (int at = last; at > 0 && at > last - kTailMax; --at) {
    const std::size_t token = prompt[at];
    if (token < types.size() && types[token] == model::TokenType::kControl) return at;
  }
  return std::max(0, last);
}

AnswerSteps::Chunk AnswerSteps::NextChunk(const Sequence& s, const nn::KvCache& cache,
                                          int most) const {
  const int at = cache.length(), prompt = s.prompt_tokens();
  const bool first = s.usage.completion_tokens == 0;
  Chunk chunk{.tokens = {},
              .at = at,
              .score = s.job.request.prompt_logprobs && first,
              .generated = at >= prompt && !s.lossless};
  const int limit = at < prompt ? std::min(s.wanted(), prompt) : s.wanted();
  if (chunk.generated) most = 1;  // one by one, as they were decoded
  if (s.job.request.prompt_logprobs && at < prompt) most = std::min(most, p_.logits_max);
  int count = std::min(most, limit - at);
  if (const int mark = NextMark(s, cache, at); mark > at) count = std::min(count, mark - at);
  chunk.tokens = std::span<const int>(s.tokens).subspan(at, count);
  chunk.last = first && at + count == s.wanted();
  return chunk;
}

Stop AnswerSteps::EndChunk(Sequence& s, const nn::KvCache& cache, const Chunk& chunk,
                           std::span<const float> logits) const {
  const int count = base::IntSize(chunk.tokens);
  if (p_.steps != nullptr)
    p_.steps->recomputed_tokens += std::clamp(s.computed_to - chunk.at, 0, count);
  s.computed_to = std::max(s.computed_to, cache.length());
  if (p_.prefixes != nullptr && NextMark(s, cache, cache.length() - 1) == cache.length())
    Keep(s, cache.length(), cache);
  if (s.usage.completion_tokens == 0)
    s.usage.prefill_tokens = s.computed_to - s.usage.cached_tokens;
  if (chunk.score) Score(s, chunk, logits);
  if (s.usage.completion_tokens == 0 && (s.job.request.progress || chunk.last))
    s.job.channel->PushProgress(cache.length(), s.usage.cached_tokens, s.job.request.progress);
  const bool late = !chunk.last && s.usage.completion_tokens == 0 &&
                    IsOver(s.prefill_since, s.job.request.prompt_ms_max);
  return late ? Stop::kLength : Stop::kNone;
}

// `logits` [T, V] predict the token after each token of the chunk.
void AnswerSteps::Score(Sequence& s, const Chunk& chunk, std::span<const float> logits) const {
  const std::size_t vocab = logits.size() / chunk.tokens.size();
  const std::size_t first = chunk.at;
  const int top = std::max(0, s.job.request.logprobs);
  for (std::size_t i = 0; i < chunk.tokens.size() && first + i + 1 < s.tokens.size(); ++i)
    sampling::ScoreToken(logits.subspan(i * vocab, vocab), s.tokens[first + i + 1], top,
                         s.prompt_scores);
}

Stop AnswerSteps::EndPrompt(Sequence& s, nn::KvCache& cache) const {
  const Request& request = s.job.request;
  if (request.prompt_logprobs) s.job.channel->PushPromptScores(std::move(s.prompt_scores));
  if (request.share_prompt && p_.prefixes != nullptr) Keep(s, s.tokens.size(), cache);
  if (request.prompt_only) return Stop::kLength;
  s.usage.phase = Phase::kDecode;
  return Stop::kNone;
}

Stop AnswerSteps::EmitToken(Sequence& s, sampling::Sampler& sampler, int token,
                            std::span<const float> logits) const {
  const Request& request = s.job.request;
  const auto& stops = request.stop_tokens;
  const auto behind = static_cast<std::size_t>(s.usage.completion_tokens) + 1;
  if (sampler.IsLost(behind)) {
    s.error = {GrammarFailure(sampler.failure())};
    return Stop::kError;
  }
  if (std::isnan(logits[token])) {
    s.error = {NotANumber("logits")};
    return Stop::kError;
  }
  if (p_.tokenizer.IsStop(token) && !request.ignore_eos) return Stop::kStop;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) return Stop::kStop;
  ++s.usage.completion_tokens;
  s.tokens.push_back(token);
  s.scores.clear();
  if (request.logprobs >= 0) sampling::ScoreToken(logits, token, request.logprobs, s.scores);
  const bool look = s.usage.completion_tokens > request.sampling.min_tokens;
  s.job.channel->Push(token, s.text.Push(token, look), s.scores);
  if (s.text.stopped() || sampler.IsOver(behind)) return Stop::kStop;
  s.has_new_line = s.has_new_line || p_.tokenizer.TokenBytes(token).find('\n') != std::string::npos;
  const bool late = IsOver(s.decode_since, request.predict_ms_max) && s.has_new_line;
  return late || TokensLeft(s) == 0 ? Stop::kLength : Stop::kNone;
}

int AnswerSteps::TokensLeft(const Sequence& s) const {
  const int room = p_.capacity - base::IntSize(s.tokens);
  const int max_tokens = s.job.request.max_tokens;
  return max_tokens == 0 ? room : std::min(room, max_tokens - s.usage.completion_tokens);
}

// The KV cache of tokens that were decoded in a lossy mode differs from the one that prefill
// computes, so it is not shared with other requests.
std::size_t AnswerSteps::TokensToKeep(const Sequence& s, const nn::KvCache& cache) {
  return std::min({static_cast<std::size_t>(cache.length()), s.tokens.size(),
                   s.lossless ? s.tokens.size() : s.job.request.prompt.size()});
}

Stop AnswerSteps::EmitEmbedding(Sequence& s, std::vector<float> embedding) {
  if (!std::all_of(embedding.begin(), embedding.end(), [](float v) { return std::isfinite(v); })) {
    s.error = {NotANumber("vectors")};
    return Stop::kError;
  }
  s.job.channel->PushEmbedding(std::move(embedding));
  return Stop::kNone;
}

void AnswerSteps::Suspend(Sequence& s, nn::KvCache& cache) const {
  s.suspended = true;
  if (p_.flash != nullptr && !s.job.request.embed.has_value())
    p_.flash->Keep(s.job.request.prefix_owner,
                   std::span<const int>(s.tokens).first(TokensToKeep(s, cache)), cache);
  cache.Clear();
}

void AnswerSteps::Finish(Sequence& s, nn::KvCache& cache, Stop why) const {
  s.usage.ended_at = SteadyClock::now();
  Status& error = s.error.status;
  const bool given_up = error.code() == StatusCode::kCancelled;  // ShouldContinue returned false
  if (given_up) error = {};
  const bool early = why == Stop::kCancelled || why == Stop::kError;
  if (error.ok() && early && !s.job.channel->cancelled())
    error = LateStatus(s.job, s.usage, cache.length(), given_up);
  const bool lost = s.error.kv_cache_lost;
  if (p_.prefixes != nullptr && lost) p_.prefixes->Clear();
  const std::size_t kept = TokensToKeep(s, cache);
  if (!s.tokens.empty()) cache.SetLength(static_cast<int>(kept));
  if (p_.prefixes != nullptr && !lost && !s.tokens.empty()) Keep(s, kept, cache);
  cache.Clear();
  if (p_.on_end) p_.on_end();
  const std::string rest = s.text.Finish();
  s.usage.stop = s.text.stop();
  if (early) return FinishEarly(s.job, s.usage, rest, error);
  s.job.channel->Finish(why == Stop::kStop ? FinishReason::kStop : FinishReason::kLength, rest,
                        s.usage);
}

}  // namespace thermocline::sched
