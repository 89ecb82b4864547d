// Runs requests, a turn at a time: prefill in chunks, then tokens, until something ends the request
// or others take their turn. Keys and values stay with the request in between.
#pragma once

#include <functional>
#include <memory>

#include "engine/adapt/ffn_governor.h"
#include "engine/exec/transformer.h"
#include "engine/nn/kv_cache.h"
#include "engine/sampling/sampler.h"
#include "engine/sched/answer_steps.h"
#include "engine/spec/decoder.h"

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
    nn::KvCache& cache;  // of the sequence whose turn it is
    const AnswerSteps& answers;
    sampling::Sampler& sampler;
    spec::Decoder& decoder;               // draws with `sampler`
    SpecMode spec_mode = SpecMode::kOff;  // of requests that do not say
    int spec_tokens = 0;                  // of a draft, the same
    adapt::FfnGovernor& governor;
    int logits_max = 1;        // as exec::Transformer
    bool short_steps = false;  // of prompts, while others wait
    // Called before every step of a turn except the first, with the tokens computed so far (prompt
    // tokens count less), and whether the turn should end as soon as anyone waits. Returns true to
    // yield to another request. Empty: nobody waits.
    std::function<bool(double, bool)> yield = {};
    std::function<bool()> crowded = {};  // whether they do; empty: nobody does
    // Seconds of a decoded token; 0, or empty: not known.
    std::function<double()> token_s = {};
    // Asked before each step to have so many blocks free in the cache's pool; false: the sequence
    // has to wait for them. Empty: there are enough.
    std::function<bool(const nn::KvCount&)> make_room = {};
  };
  explicit DecodeLoop(const Params& params);

  // Runs `sequence` until it ends, which finishes its channel, or has to wait. With kNoMemory its
  // keys and values are given up. Requires: it has not ended.
  TurnEnd Run(Sequence& sequence);
  // Tokens that the last turn computed; a prompt's count less.
  double spent() const { return spent_; }

 private:
  // The parts of a turn: why it ended; kNone: it goes on.
  Stop ReadTokens(Sequence& s);
  Stop Embed(Sequence& s);
  Stop ReadChunk(Sequence& s, std::span<const float>& logits);
  int ReadMost() const;
  // A step that read `tokens` tokens took `seconds`.
  void ChargeReading(int tokens, double seconds);
  Stop Decode(Sequence& s);
  Stop Step(Sequence& s);
  void BeginDecoding(const Sequence& s);
  Stop BeforeStep(Sequence& s, int tokens);
  double Spent(int tokens, double seconds);

  exec::Transformer& transformer_;
  nn::KvCache& cache_;
  const AnswerSteps& answers_;
  StepCounters* const steps_;
  sampling::Sampler& sampler_;
  spec::Decoder& decoder_;
  const SpecMode spec_mode_;
  const int spec_tokens_;
  adapt::FfnGovernor& governor_;
  const int logits_max_;
  const std::function<bool(double, bool)> yield_;
  const bool short_steps_;
  const std::function<bool()> crowded_;
  const std::function<double()> token_s_;
  const std::function<bool(const nn::KvCount&)> make_room_;
  double spent_ = 0;   // tokens of this turn
  bool first_ = true;  // no step of this turn is done
};

}  // namespace thermocline::sched
