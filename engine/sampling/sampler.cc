#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/base/index.h"
#include "engine/base/stopwatch.h"

namespace thermocline::sampling {
namespace {

constexpr const char* kTooAmbiguous =
    "the grammar is too ambiguous: too many ways to read the text";

}  // namespace

SamplerScratch::SamplerScratch(int vocab_size) : logits_(vocab_size), candidates_(vocab_size) {
  distribution_.Reserve(logits_.size());
}

std::size_t SamplerScratch::Bytes(int vocab_size) {
  return vocab_size * (sizeof(float) + Distribution::kBytes) + Candidates::Bytes(vocab_size);
}

Sampler::Sampler(int vocab_size, int tokens_max, bool own_scratch)
    : dry_(vocab_size, tokens_max),
      own_scratch_(own_scratch ? std::make_unique<SamplerScratch>(vocab_size) : nullptr),
      scratch_(own_scratch_.get()),
      vocab_(vocab_size),
      generated_counts_(vocab_),
      in_prompt_(vocab_),
      matcher_(tokens_max, vocab_size) {
  touched_.reserve(vocab_);
  params_.logit_bias.reserve(vocab_);
  params_.dry_breakers.reserve(vocab_);
  params_.end_tokens.reserve(vocab_);
  held_back_.reserve(vocab_);
  tokens_.reserve(tokens_max);
}

std::size_t Sampler::Bytes(int vocab_size, int tokens_max, bool own_scratch) {
  const SamplingParams lists;  // stands for lists that may contain every token
  const std::size_t word = sizeof(float) + 2 * sizeof(int) + sizeof(lists.logit_bias[0]) +
                           sizeof(lists.dry_breakers[0]) + sizeof(lists.end_tokens[0]);
  const std::size_t words = vocab_size;
  return words * word + words / 8 + tokens_max * sizeof(int) +
         DryPenalty::Bytes(vocab_size, tokens_max) +
         grammar::Matcher::Bytes(vocab_size, tokens_max) +
         (own_scratch ? SamplerScratch::Bytes(vocab_size) : 0);
}

std::size_t Sampler::BytesOf(int samplers, int threads, int vocab_size, int tokens_max) {
  if (samplers == 0) return 0;
  const std::size_t each = Bytes(vocab_size, 0, /*own_scratch=*/false);
  const std::size_t tokens = Bytes(vocab_size, tokens_max, /*own_scratch=*/false) - each;
  return samplers * each + 2 * tokens + threads * SamplerScratch::Bytes(vocab_size);
}

void Sampler::Begin(const SamplingParams& params, std::span<const int> prompt) {
  for (const int token : touched_) {
    generated_counts_[token] = 0;
    in_prompt_[token] = false;
  }
  touched_.clear();
  tokens_.clear();
  params_ = params;
  random_ = SeededRandomSource(params.seed);
  dry_.Begin(params_);
  matcher_.Begin(params.constraint);
  thought_.Begin(params.thought);
  failure_ = nullptr;
  if (dry_.on()) tokens_.assign(prompt.begin(), prompt.end());
  prompt_tokens_ = tokens_.size();
  if (params.repetition_penalty == 1.0) return;
  for (const int token : prompt) {
    const std::size_t at = token;
    if (in_prompt_[at]) continue;
    in_prompt_[at] = true;
    touched_.push_back(token);
  }
}

void Sampler::Accept(int token) {
  const std::size_t at = token;
  if (generated_counts_[at]++ == 0 && !in_prompt_[at]) touched_.push_back(token);
  tokens_.push_back(token);
  if (thought_.on()) thought_.Accept(token);
  if (!matcher_.on()) return;
  matcher_.Accept(token);
  if (matcher_.overrun()) failure_ = kTooAmbiguous;
}

void Sampler::Retract() {
  if (matcher_.on()) matcher_.Retract();
  if (thought_.on()) thought_.Retract();
  const int token = tokens_.back();
  const std::size_t at = token;
  tokens_.pop_back();
  if (--generated_counts_[at] > 0 || in_prompt_[at]) return;
  // The token is usually near the end.
  const auto entry = std::find(touched_.rbegin(), touched_.rend(), token);
  *entry = touched_.back();
  touched_.pop_back();
}

int Sampler::Sample(std::span<const float> logits, int position) {
  return random_.Pick(Compute(logits), position, Stream::kToken);
}

bool Sampler::MakeMask() {
  if (!matcher_.on() || thought_.ForcedToken() >= 0) return true;
  const base::Stopwatch watch;
  const bool made = matcher_.MakeMask(grammar::Matcher::kSlice);
  seconds_ += watch.Seconds();
  return made;
}

const Distribution& Sampler::Compute(std::span<const float> logits) {
  CHECK_EQ(logits.size(), scratch_->logits_.size());
  const base::Stopwatch watch;
  if (const int forced = thought_.ForcedToken(); forced >= 0) {
    Force(forced);
    return scratch_->distribution_;
  }
  std::copy(logits.begin(), logits.end(), scratch_->logits_.begin());
  Adjust();
  // Under a grammar only allowed tokens are candidates.
  if (masked_) {
    scratch_->candidates_.Collect(scratch_->logits_, matcher_.Mask());
  } else {
    scratch_->candidates_.Collect(scratch_->logits_);
  }
  scratch_->distribution_.Clear();
  if (params_.temperature == 0) {
    scratch_->distribution_.Add(scratch_->candidates_.Best(), 1);
  } else {
    KeepTop();
  }
  seconds_ += watch.Seconds();
  return scratch_->distribution_;
}

void Sampler::Force(int token) {
  masked_ = false;
  failure_ = nullptr;
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  std::fill(scratch_->logits_.begin(), scratch_->logits_.end(), kNever);
  scratch_->logits_[token] = 0;
  scratch_->distribution_.Clear();
  scratch_->distribution_.Add(token, 1);
}

int Sampler::Forced(std::span<int> out) {
  if (thought_.ForcedToken() >= 0) return thought_.Forced(out);
  return matcher_.on() ? matcher_.Forced(out) : 0;
}

int Sampler::Top(int count, Scored* out) const {
  int held = 0;
  for (int i = 0; i < base::IntSize(scratch_->logits_); ++i) {
    if (held == count && !(scratch_->logits_[i] > out[held - 1].logit)) continue;
    int at = held == count ? held - 1 : held++;
    for (; at > 0 && scratch_->logits_[i] > out[at - 1].logit; --at) out[at] = out[at - 1];
    out[at] = {scratch_->logits_[i], i};
  }
  return held;
}

void Sampler::Adjust() {
  for (const auto& [token, bias] : params_.logit_bias) scratch_->logits_[token] += bias;
  const auto repetition = static_cast<float>(params_.repetition_penalty);
  for (const int token : touched_) {
    const std::size_t at = token;
    float& logit = scratch_->logits_[at];
    if (repetition != 1.0F) logit = logit > 0 ? logit / repetition : logit * repetition;
    if (generated_counts_[at] > 0) {
      logit -= static_cast<float>(params_.presence_penalty +
                                  params_.frequency_penalty * generated_counts_[at]);
    }
  }
  if (dry_.on()) dry_.Apply(tokens_, scratch_->logits_);
  ApplyGrammar();
  if (!params_.end_tokens.empty() &&
      accepted().size() < static_cast<std::size_t>(params_.min_tokens))
    HoldBackEnd();
}

// Makes the tokens that the grammar forbids impossible.
void Sampler::ApplyGrammar() {
  masked_ = false;
  failure_ = nullptr;
  if (!matcher_.on()) return;
  const auto mask = matcher_.Mask();
  masked_ = std::any_of(mask.begin(), mask.end(), [](std::uint64_t word) { return word != 0; });
  if (!masked_) {
    failure_ = matcher_.overrun() ? kTooAmbiguous
                                  : "no token of the model's vocabulary can follow in the grammar";
    return;
  }
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const std::size_t count = scratch_->logits_.size();
  for (std::size_t begin = 0; begin < count; begin += 64) {
    const std::uint64_t word = mask[begin / 64];
    if (word == ~std::uint64_t{0}) continue;
    const std::size_t end = std::min(begin + 64, count);
    for (std::size_t i = begin; i < end; ++i)
      scratch_->logits_[i] = (word >> (i - begin) & 1) != 0 ? scratch_->logits_[i] : kNever;
  }
}

void Sampler::CountForced(int proposed, int accepted) {
  grammar::Counters* counters = matcher_.on() ? params_.constraint->counters() : nullptr;
  if (counters == nullptr) return;
  counters->forced_tokens.fetch_add(proposed, std::memory_order_relaxed);
  counters->forced_accepted_tokens.fetch_add(accepted, std::memory_order_relaxed);
}

// Makes the end tokens impossible, unless no other token is possible.
void Sampler::HoldBackEnd() {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  held_back_.clear();
  for (const int token : params_.end_tokens)
    held_back_.push_back(std::exchange(scratch_->logits_[token], kNever));
  if (*std::max_element(scratch_->logits_.begin(), scratch_->logits_.end()) > kNever) return;
  for (std::size_t i = held_back_.size(); i-- > 0;)  // backwards: a token may be named twice
    scratch_->logits_[params_.end_tokens[i]] = held_back_[i];
}

void Sampler::KeepTop() {
  Candidates& candidates = scratch_->candidates_;
  if (params_.top_k > 0) candidates.KeepMostProbable(params_.top_k);
  candidates.Weigh(Largest(scratch_->logits_), params_.temperature);
  if (params_.typical_p < 1) candidates.KeepTypical(params_.typical_p);
  if (params_.top_p < 1) candidates.KeepNucleus(params_.top_p);
  candidates.WriteTo(scratch_->distribution_, params_.min_p);
}

double LogProbability(std::span<const float> logits, int token) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - max);
  return logits[token] - max - std::log(total);
}

}  // namespace thermocline::sampling
