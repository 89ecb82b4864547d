// Runs requests, a turn at a time: prefill in chunks, then tokens, until something ends the request
// or others take their turn. Keys and values stay with the request in between.
#pragma once

#include <functional>
#include <memory>

#include "engine/adapt/ffn_governor.h"
#include "engine/exec/transformer.h"
#include "engine/nn/kv_cache.h"
#include "engine/nn/prefix_cache.h"
#include "engine/sampling/sampler.h"
#include "engine/sched/sequence.h"
#include "engine/sched/step_counters.h"
#include "engine/spec/decoder.h"
#include "engine/text/tokenizer.h"

namespace thermocline::sched {

enum class TurnEnd {
  kFinished,
  kCacheLost,  // finished by an error of a device: the KV caches of all sequences are lost
  kYielded,
  kReaderSlow,
  kNoMemory
};

// Decode thread only. Borrows everything.
class DecodeLoop {
 public:
  struct Params {
    exec::Transformer& transformer;
    nn::KvCache& cache;         // of the sequence whose turn it is
    nn::PrefixCache* prefixes;  // or null: every prompt is computed whole
    sampling::Sampler& sampler;
    spec::Decoder& decoder;               // draws with `sampler`
    SpecMode spec_mode = SpecMode::kOff;  // of requests that do not say
    int spec_tokens = 0;                  // of a draft, the same
    adapt::FfnGovernor& governor;
    const text::Tokenizer& tokenizer;
    int logits_max = 1;                              // as exec::Transformer
    std::atomic<std::int64_t>* heartbeat = nullptr;  // counts steps and slices of waiting
    StepCounters* steps = nullptr;
    bool short_steps = false;           // of prompts, while others wait
    std::function<void()> on_end = {};  // before a request's channel ends
    // Asked before each step but a turn's first with the tokens that the turn has computed (a
    // prompt's count less); true: others want to go on. Empty: nobody.
    std::function<bool(double)> yield = {};
    std::function<bool()> crowded = {};  // whether they do; empty: nobody does
    // Asked before each step to have so many blocks free in the cache's pool; false: the sequence
    // has to wait for them. Empty: there are enough.
    std::function<bool(const nn::KvCount&)> make_room = {};
  };
  explicit DecodeLoop(const Params& params);

  // Runs `sequence` until it ends, which finishes its channel, or has to wait. With kNoMemory its
  // keys and values are given up. Requires: it has not ended.
  TurnEnd Run(Sequence& sequence);
  // Of the last turn, tokens that it computed; a prompt's count less.
  double spent() const { return spent_; }
  // Ends a sequence that was cancelled or is late between its turns.
  void End(Sequence& sequence);

 private:
  // Whether the client still waits and the deadline has not passed.
  bool GoesOn(const Job& job) const;
  // The parts of a turn: why it ended; kNone: it goes on.
  enum class Stop { kNone, kStop, kLength, kCancelled, kYielded, kReaderSlow, kNoMemory };
  Stop ReadTokens(Sequence& s);
  Stop Embed(Sequence& s);
  Stop ReadChunk(Sequence& s, std::span<const float>& logits);
  int ChunkOf(const Sequence& s) const;
  void Find(Sequence& s);
  void ScorePrompt(Sequence& s, std::span<const int> tokens, std::span<const float> logits);
  Stop Decode(Sequence& s);
  Stop Step(Sequence& s);
  void BeginDecoding(const Sequence& s);
  Stop BeforeStep(Sequence& s, int tokens);
  // Gives one token to the client.
  Stop Give(Sequence& s, int token, std::span<const float> logits);
  // Tokens that may come behind those that came.
  int Wanted(const Sequence& s) const;
  void Finish(Sequence& s, Stop why);

  exec::Transformer& transformer_;
  nn::KvCache& cache_;
  nn::PrefixCache* const prefixes_;
  sampling::Sampler& sampler_;
  spec::Decoder& decoder_;
  const SpecMode spec_mode_;
  const int spec_tokens_;
  adapt::FfnGovernor& governor_;
  const text::Tokenizer& tokenizer_;
  const int logits_max_;
  std::atomic<std::int64_t>* const heartbeat_;
  StepCounters* const steps_;
  const std::function<void()> on_end_;
  const std::function<bool(double)> yield_;
  const bool short_steps_;
  const std::function<bool()> crowded_;
  const std::function<bool(const nn::KvCount&)> make_room_;
  exec::StepError error_;  // of the last step
  double spent_ = 0;       // tokens of this turn
  bool first_ = true;      // no step of this turn is done
};

}  // namespace thermocline::sched
