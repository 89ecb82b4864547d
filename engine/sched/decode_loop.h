// Runs one request at a time, for a turn: prefill in chunks, then decoding, until the request ends
// or yields to another one. The request keeps its KV cache between turns.
#pragma once

#include <functional>
#include <memory>

#include "engine/adapt/ffn_governor.h"
#include "engine/exec/transformer.h"
#include "engine/nn/kv_cache.h"
#include "engine/sampling/sampler.h"
#include "engine/sched/answer_steps.h"
#include "engine/sched/text_vectors.h"
#include "engine/sched/turn_order.h"
#include "engine/spec/decoder.h"

namespace thermocline::sched {

enum class TurnEnd {
  kFinished,
  kCacheLost,  // ended by a device error: the KV caches of all sequences are lost
  kYielded,
  kReaderSlow,
  kNoMemory
};

// Decode thread only. Borrows all its parameters.
class DecodeLoop {
 public:
  struct Params {
    exec::Transformer& transformer;
    nn::KvCache& cache;  // holds the KV cache of the sequence whose turn it is
    const AnswerSteps& answers;
    sampling::Sampler& sampler;
    spec::Decoder& decoder;               // draws with `sampler`
    SpecMode spec_mode = SpecMode::kOff;  // of requests that do not set a mode
    int spec_tokens = 0;                  // draft length of requests that do not set one
    adapt::FfnGovernor& governor;
    int logits_max = 1;        // as exec::Transformer
    bool short_steps = false;  // shorter prefill steps while other requests wait
    // Called before every step of a turn except the first, with the tokens computed so far (prompt
    // tokens count less). Returns true to yield to another request. Empty means that no request is
    // waiting.
    std::function<bool(double, TurnOrder::Turn)> yield = {};
    std::function<bool()> crowded = {};  // true if other requests wait; empty: never
    // Seconds per decoded token; 0, or empty: not known.
    std::function<double()> token_s = {};
    // Called before each step to free that many blocks in the cache's pool. Returns false if the
    // sequence has to wait for memory. Empty: the pool has enough blocks.
    std::function<bool(const nn::KvCount&)> make_room = {};
  };
  explicit DecodeLoop(const Params& params);

  // Runs `sequence` until it ends, which finishes its channel, or has to wait. With kNoMemory its
  // KV cache has been released. Requires: the sequence has not ended.
  TurnEnd Run(Sequence& sequence);
  // Tokens that the last turn computed; prompt tokens count less.
  double spent() const { return spent_; }

 private:
  // The phases of a turn. Each returns the reason why the turn ended, or kNone to continue.
  Stop Prefill(Sequence& s);
  Stop PrefillChunk(Sequence& s, std::span<const float>& logits);
  int PrefillTokensMax() const;
  static TurnOrder::Turn TurnOf(const Sequence& s);
  // Adds the cost of a prefill step of `tokens` tokens that took `seconds`.
  void ChargePrefill(int tokens, double seconds);
  Stop Decode(Sequence& s);
  Stop Step(Sequence& s);
  void BeginDecoding(const Sequence& s);
  Stop BeforeStep(Sequence& s, int tokens);
  Stop BeforeStep(Sequence& s, const nn::KvCount& blocks);
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
  const std::function<bool(double, TurnOrder::Turn)> yield_;
  const bool short_steps_;
  const std::function<bool()> crowded_;
  const std::function<double()> token_s_;
  const std::function<bool(const nn::KvCount&)> make_room_;
  const TextVectors vectors_;
  double spent_ = 0;   // tokens of this turn, weighted
  bool first_ = true;  // this turn has computed no step yet
};

}  // namespace thermocline::sched
