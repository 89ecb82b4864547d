#include "engine/sched/decode_loop.h"

#include <algorithm>
#include <cmath>

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
      tokenizer_(p.tokenizer),
      heartbeat_(p.heartbeat) {
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
  transformer_.SetOnWait([this, &job] { return GoesOn(job); });
  const std::span<const float> logits = Prefill(job, usage);
  const std::size_t prompt = cached_.size();
  const auto prefilled = SteadyClock::now();
  usage.prefill_s = Seconds(prefilled - begin);
  if (!logits.empty()) reason = Decode(job, logits, usage, rest);
  const bool given_up = error_.code() == StatusCode::kCancelled;  // by GoesOn, while waiting
  if (given_up) error_ = {};
  if (error_.ok() && reason == FinishReason::kCancelled) error_ = WhyEnded(job, usage, given_up);
  if (!error_.ok()) reason = FinishReason::kError;
  transformer_.SetOnWait({});
  usage.decode_s = Seconds(SteadyClock::now() - prefilled);
  // Keys and values of tokens that were decoded with loss are no other request's: it would get what
  // no prompt gives.
  if (!std::all_of(modes->begin(), modes->end(), IsLossless)) cached_.resize(prompt);
  // A device that failed lost the keys and values of its layers, of earlier requests too.
  const bool lost = transformer_.device() != nullptr && transformer_.device()->failed();
  if (prefixes_ != nullptr && lost) prefixes_->Clear();
  if (prefixes_ != nullptr && !lost) prefixes_->Keep(cached_, cache_);
  cache_.Clear();
  job.channel->Finish(reason, rest, usage, error_);
  return reason;
}

bool DecodeLoop::GoesOn(const Job& job) const {
  if (heartbeat_ != nullptr) heartbeat_->fetch_add(1, std::memory_order_relaxed);
  if (job.channel->cancelled()) return false;
  const auto& deadline = job.request.deadline;
  return !deadline.has_value() || SteadyClock::now() < *deadline;
}

Status DecodeLoop::WhyEnded(const Job& job, const Usage& usage, bool waited_for_flash) const {
  if (job.channel->cancelled() || !job.request.deadline.has_value()) return OkStatus();
  const double allowed =
      std::round(std::max(0.0, Seconds(*job.request.deadline - job.submitted)) * 1000) / 1000;
  const char* device = waited_for_flash ? ", waiting for the flash device" : "";
  const auto late = [&](auto&&... doing) {
    return Status(StatusCode::kDeadlineExceeded,
                  StrCat("the request did not end within ", allowed, " s: it was ", doing...));
  };
  if (usage.completion_tokens > 0) {
    return late("writing the answer, after ", usage.completion_tokens, " tokens", device,
                " (queue ", usage.queue_s, " s, prompt ", usage.prefill_s, " s)");
  }
  if (usage.queue_s >= allowed) return late("in the queue for ", usage.queue_s, " s");
  return late("reading the prompt, after ", cached_.size(), " of ", usage.prompt_tokens, " tokens",
              device, " (queue ", usage.queue_s, " s)");
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
    if (!GoesOn(job)) return {};
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
    if (!GoesOn(job)) {
      finish_text();
      return FinishReason::kCancelled;
    }
    const int token = sampler_.Sample(logits, cache_.length());
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
