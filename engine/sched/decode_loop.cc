#include "engine/sched/decode_loop.h"

#include <algorithm>

#include "engine/sched/stop_matcher.h"
#include "engine/text/detokenizer.h"

namespace thermocline::sched {
namespace {

double Seconds(SteadyClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

DecodeLoop::DecodeLoop(const Params& p)
    : transformer_(p.transformer),
      cache_(p.cache),
      prefixes_(p.prefixes),
      sampler_(p.sampler),
      governor_(p.governor),
      model_(p.model),
      tokenizer_(p.tokenizer) {
  cached_.reserve(static_cast<std::size_t>(cache_.capacity()));
}

FinishReason DecodeLoop::Run(Job& job, Usage& usage) {
  const auto begin = SteadyClock::now();
  error_ = {};
  usage.prompt_tokens = static_cast<int>(job.request.prompt.size());
  usage.queue_s = Seconds(begin - job.submitted);
  std::string rest;
  FinishReason reason = FinishReason::kCancelled;
  const auto modes = model_.ModesFor(job.request.ffn_mode);
  if (!modes.ok()) {  // Submit has checked them
    job.channel->Finish(FinishReason::kError, "", usage);
    return FinishReason::kError;
  }
  governor_.SetModes(*modes);
  transformer_.SetOnWait([&job] { return !job.channel->cancelled(); });
  const std::span<const float> logits = Prefill(job, usage);
  const std::size_t prompt = cached_.size();
  const auto prefilled = SteadyClock::now();
  usage.prefill_s = Seconds(prefilled - begin);
  if (!logits.empty()) reason = Decode(job, logits, usage, rest);
  if (error_.code() == StatusCode::kCancelled) error_ = {};  // it was its own client's wish
  if (!error_.ok()) reason = FinishReason::kError;
  transformer_.SetOnWait({});
  usage.decode_s = Seconds(SteadyClock::now() - prefilled);
  // Keys and values of tokens that were decoded with loss are no other request's: it would get what
  // no prompt gives.
  if (!std::all_of(modes->begin(), modes->end(), IsLossless)) cached_.resize(prompt);
  if (prefixes_ != nullptr) prefixes_->Keep(cached_, cache_);
  cache_.Clear();
  job.channel->Finish(reason, rest, usage, error_);
  return reason;
}

std::span<const float> DecodeLoop::Prefill(const Job& job, Usage& usage) {
  const std::span<const int> prompt = job.request.prompt;
  cache_.Clear();
  const int found = prefixes_ != nullptr ? prefixes_->Find(prompt, cache_) : 0;
  usage.cached_tokens = found;
  cached_.assign(prompt.begin(), prompt.begin() + found);
  const auto chunk_max = static_cast<std::size_t>(transformer_.tokens_max());
  std::span<const float> logits;
  for (std::size_t begin = cached_.size(); begin < prompt.size(); begin += chunk_max) {
    if (job.channel->cancelled()) return {};
    const std::size_t count = std::min(chunk_max, prompt.size() - begin);
    const bool last = begin + count == prompt.size();
    logits = Forward(prompt.subspan(begin, count),
                     last ? exec::Transformer::Logits::kLast : exec::Transformer::Logits::kNone,
                     exec::Transformer::Step::kPrefill);
    if (!error_.ok()) return {};
  }
  return logits;
}

std::span<const float> DecodeLoop::Forward(std::span<const int> tokens,
                                           exec::Transformer::Logits wanted,
                                           exec::Transformer::Step step) {
  const auto logits = transformer_.Forward(tokens, cache_, wanted, step);
  error_ = transformer_.status();
  if (error_.ok()) cached_.insert(cached_.end(), tokens.begin(), tokens.end());
  return logits;
}

FinishReason DecodeLoop::Decode(Job& job, std::span<const float> logits, Usage& usage,
                                std::string& rest) {
  const Request& request = job.request;
  sampler_.Begin(request.sampling, request.prompt);
  const bool at_text_start =
      request.prompt.size() == 1 && request.prompt[0] == tokenizer_.vocabulary().bos;
  text::Detokenizer detokenizer(tokenizer_, at_text_start);
  StopMatcher stops(request.stop);
  std::string decoded, certain;
  decoded.reserve(1024);
  certain.reserve(1024);
  const auto finish_text = [&] {
    decoded.clear();
    detokenizer.Finish(decoded);
    if (!stops.Push(decoded, rest)) stops.Finish(rest);
  };
  while (true) {
    if (job.channel->cancelled()) return FinishReason::kCancelled;
    const int token = sampler_.Sample(logits, request.sampling, cache_.length());
    if (tokenizer_.IsStop(token) && !request.ignore_eos) {
      finish_text();
      return FinishReason::kStop;
    }
    sampler_.Accept(token);
    ++usage.completion_tokens;
    decoded.clear();
    certain.clear();
    detokenizer.Push(token, decoded);
    const bool stopped = stops.Push(decoded, certain);
    job.channel->Push(token, certain);
    if (stopped) return FinishReason::kStop;
    if (usage.completion_tokens == request.max_tokens || cache_.length() + 1 >= cache_.capacity()) {
      finish_text();
      return FinishReason::kLength;
    }
    logits = Forward(std::span(&token, 1), exec::Transformer::Logits::kLast,
                     exec::Transformer::Step::kDecode);
    if (logits.empty()) {  // the weights could not be read
      finish_text();
      return FinishReason::kCancelled;
    }
    governor_.AfterToken();
  }
}

}  // namespace thermocline::sched
