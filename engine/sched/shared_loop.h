// Steps that sequences share: the next token of those that answer and parts of the prompts of those
// that read, in one pass over the weights. A token has the bits that it has alone.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/adapt/ffn_governor.h"
#include "engine/base/worker_pool.h"
#include "engine/exec/transformer.h"
#include "engine/sampling/sampler.h"
#include "engine/sched/answer_steps.h"

namespace thermocline::sched {

// Decode thread only. Borrows everything. A sequence that answers has a sampler of its own from its
// first shared step until it leaves.
class SharedLoop {
 public:
  struct Params {
    exec::Transformer& transformer;
    base::WorkerPool& pool;
    const AnswerSteps& answers;
    adapt::FfnGovernor& governor;
    int capacity = 0;  // tokens of a sequence
  };
  explicit SharedLoop(const Params& params);

  // What a sequence has of a step.
  struct Share {
    Sequence* sequence;
    AnswerSteps::Chunk read = {};  // of its tokens; empty: it answers
    Stop why = Stop::kNone;        // after Run: why it does not go on

    int tokens() const { return read.tokens.empty() ? 1 : base::IntSize(read.tokens); }
  };
  // Computes a step and gives what comes of it; returns its seconds. Requires: sequences of the
  // same modes; none reads where the modes lose something and another one answers; as many tokens
  // and logits as the transformer takes; room for them in the pool.
  double Run(std::span<Share> shares);
  // The sequence goes on elsewhere, or has ended.
  void Leave(Sequence& sequence);

 private:
  // The sampler of a sequence whose next token is drawn here.
  void Join(Sequence& s);
  exec::StepResult<std::span<const float>> Forward(std::span<const Share> shares);
  void Take(std::span<Share> shares, std::span<const float> logits);
  void DrawAll();
  void Count(std::span<const Share> shares, const StepTimer& timer);

  exec::Transformer& transformer_;
  base::WorkerPool& pool_;
  const AnswerSteps& answers_;
  adapt::FfnGovernor& governor_;
  const int capacity_;
  std::vector<std::unique_ptr<sampling::Sampler>> free_samplers_;
  std::vector<std::unique_ptr<sampling::SamplerScratch>> scratch_;  // [threads]
  std::vector<exec::Transformer::Part> parts_;
  struct Draw {
    Share* share;
    std::span<const float> logits;  // [V]
    int token = 0;
  };
  std::vector<Draw> draws_;
};

}  // namespace thermocline::sched
