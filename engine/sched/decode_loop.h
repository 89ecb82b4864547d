// Runs one request: prefill in chunks, then a token at a time until something ends it.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "engine/exec/ffn_governor.h"
#include "engine/exec/kv_cache.h"
#include "engine/exec/prefix_cache.h"
#include "engine/exec/sampler.h"
#include "engine/exec/transformer.h"
#include "engine/spec/decoder.h"
#include "engine/text/tokenizer.h"
#include "engine/token_channel.h"

namespace thermocline::sched {

using SteadyClock = std::chrono::steady_clock;

// A request on its way through the queue.
struct Job {
  Request request;
  std::shared_ptr<TokenChannel> channel;  // shared with the consumer, who may leave first
  SteadyClock::time_point submitted;
};

// Decode thread only. Borrows everything.
class DecodeLoop {
 public:
  struct Params {
    exec::Transformer& transformer;
    exec::KvCache& cache;
    exec::PrefixCache* prefixes;  // or null: every prompt is computed whole
    exec::Sampler& sampler;
    spec::Decoder& decoder;               // draws with `sampler`
    SpecMode spec_mode = SpecMode::kOff;  // of requests that do not say
    int spec_tokens = 0;                  // of a draft, the same
    exec::FfnGovernor& governor;
    const exec::LoadedModel& model;
    const text::Tokenizer& tokenizer;
    std::atomic<std::int64_t>* heartbeat = nullptr;  // counts steps and slices of waiting
    std::function<void()> on_end = {};               // before the channel ends
  };
  explicit DecodeLoop(const Params& params);

  // Runs `job` to its end and finishes its channel. Returns why it ended, and the usage in `usage`.
  FinishReason Run(Job& job, Usage& usage);

 private:
  // Whether the client still waits and the deadline has not passed.
  bool GoesOn(const Job& job) const;
  // What ends a job that GoesOn says does not: nothing, or DeadlineExceeded.
  Status WhyEnded(const Job& job, const Usage& usage, bool waited_for_flash) const;
  // Logits behind the last prompt token; empty if the job has ended.
  std::span<const float> Prefill(const Job& job, Usage& usage);
  // What a request's tokens become: text, and the reason to end.
  struct Text;
  FinishReason Decode(Job& job, std::span<const float> logits, Usage& usage, std::string& rest);
  // Gives one token to the client; kNone: go on.
  FinishReason Give(int token, Job& job, Usage& usage, Text& text);
  // Tokens that may come behind those that came.
  int Wanted(const Request& request, const Usage& usage) const;
  // Leaves in cached_ and the cache what became text.
  void KeepTokens(const Usage& usage);

  exec::Transformer& transformer_;
  exec::KvCache& cache_;
  exec::PrefixCache* const prefixes_;
  exec::Sampler& sampler_;
  spec::Decoder& decoder_;
  const SpecMode spec_mode_;
  const int spec_tokens_;
  exec::FfnGovernor& governor_;
  const exec::LoadedModel& model_;
  const text::Tokenizer& tokenizer_;
  std::atomic<std::int64_t>* const heartbeat_;
  const std::function<void()> on_end_;
  Status error_;             // of the last Forward: weights could not be read
  std::vector<int> cached_;  // the tokens in cache_, in order; never grows beyond its capacity
};

}  // namespace thermocline::sched
