#include "engine/sched/decode_loop.h"

#include <algorithm>
#include <cmath>

#include "engine/sched/stop_matcher.h"
#include "engine/spec/set_up.h"
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
      decoder_(p.decoder),
      spec_mode_(p.spec_mode),
      spec_tokens_(p.spec_tokens),
      governor_(p.governor),
      model_(p.model),
      tokenizer_(p.tokenizer),
      heartbeat_(p.heartbeat),
      on_end_(p.on_end) {
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
  if (on_end_) on_end_();
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
    const auto tokens = prompt.subspan(begin, count);
    logits = transformer_.Forward(
        tokens, cache_, last ? exec::Transformer::Logits::kLast : exec::Transformer::Logits::kNone,
        exec::Transformer::Step::kPrefill);
    error_ = transformer_.status();
    if (!error_.ok()) return {};
    cached_.insert(cached_.end(), tokens.begin(), tokens.end());
  }
  return logits;
}

struct DecodeLoop::Text {
  Text(const text::Tokenizer& tokenizer, const Request& request, bool at_text_start)
      : detokenizer(tokenizer, at_text_start), stops(request.stop) {
    decoded.reserve(1024);
    certain.reserve(1024);
  }
  // What was held back, when no stop string ended the text.
  void Finish(std::string& rest) {
    decoded.clear();
    detokenizer.Finish(decoded);
    if (!stops.Push(decoded, rest)) stops.Finish(rest);
  }

  text::Detokenizer detokenizer;
  StopMatcher stops;
  std::string decoded, certain;
  bool stopped = false;  // by a stop string
};

FinishReason DecodeLoop::Give(int token, Job& job, Usage& usage, Text& text) {
  const Request& request = job.request;
  if (tokenizer_.IsStop(token) && !request.ignore_eos) return FinishReason::kStop;
  ++usage.completion_tokens;
  text.decoded.clear();
  text.certain.clear();
  text.detokenizer.Push(token, text.decoded);
  text.stopped = text.stops.Push(text.decoded, text.certain);
  job.channel->Push(token, text.certain);
  if (text.stopped) return FinishReason::kStop;
  return Wanted(request, usage) == 0 ? FinishReason::kLength : FinishReason::kNone;
}

int DecodeLoop::Wanted(const Request& request, const Usage& usage) const {
  const int room = cache_.capacity() - usage.prompt_tokens - usage.completion_tokens;
  if (request.max_tokens == 0) return room;
  return std::min(room, request.max_tokens - usage.completion_tokens);
}

FinishReason DecodeLoop::Decode(Job& job, std::span<const float> logits, Usage& usage,
                                std::string& rest) {
  const Request& request = job.request;
  sampler_.Begin(request.sampling, request.prompt);
  const auto mode =
      request.spec_mode.empty() ? Result<SpecMode>(spec_mode_) : spec::ParseMode(request.spec_mode);
  decoder_.Begin(
      request.prompt, mode.ok() ? *mode : spec_mode_,  // Submit has checked it
      request.spec_tokens >= 0 ? std::min(request.spec_tokens, spec_tokens_) : spec_tokens_);
  decoder_.SetOnWait([this, &job] { return GoesOn(job); });
  const bool at_text_start =
      request.prompt.size() == 1 && request.prompt[0] == tokenizer_.vocabulary().bos;
  Text text(tokenizer_, request, at_text_start);
  FinishReason reason = FinishReason::kNone;
  while (reason == FinishReason::kNone) {
    if (!GoesOn(job)) {
      reason = FinishReason::kCancelled;
    } else if (!logits.empty()) {
      reason = Give(decoder_.First(logits), job, usage, text);
      logits = {};
    } else {
      const auto tokens = decoder_.Next(Wanted(request, usage));
      error_ = tokens.status();
      if (!error_.ok()) {
        reason = FinishReason::kCancelled;
        break;
      }
      for (std::size_t i = 0; i < tokens->size() && reason == FinishReason::kNone; ++i)
        reason = Give((*tokens)[i], job, usage, text);
      if (reason == FinishReason::kNone) governor_.AfterToken();
    }
  }
  decoder_.End();
  decoder_.SetOnWait({});
  usage.spec = decoder_.usage();
  if (!text.stopped) text.Finish(rest);
  KeepTokens(usage);
  return reason;
}

void DecodeLoop::KeepTokens(const Usage& usage) {
  const int tokens = std::min(usage.prompt_tokens + usage.completion_tokens, cache_.length());
  const auto kept = decoder_.sequence().first(static_cast<std::size_t>(tokens));
  cached_.assign(kept.begin(), kept.end());
  cache_.SetLength(tokens);
}

}  // namespace thermocline::sched
