// Steps that sequences share: the next token of those that answer and parts of the prompts of those
// that read, in one pass over the weights. A token has the bits that it has alone.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/adapt/ffn_governor.h"
#include "engine/base/worker_pool.h"
#include "engine/exec/transformer.h"
#include "engine/sched/answer_steps.h"

namespace thermocline::sched {

// Decode thread only. Borrows everything. A sequence that answers has a lane from its first shared
// step until it leaves.
class SharedLoop {
 public:
  struct Params {
    exec::Transformer& transformer;
    base::WorkerPool& pool;
    const AnswerSteps& answers;
    adapt::FfnGovernor& governor;
    int capacity = 0;  // tokens of a sequence
    // Tokens of a draft from an answer's own text, where its request does not say; 0 = none.
    int drafts_max = 0;
  };
  explicit SharedLoop(const Params& params);

  // A sequence's part of a step.
  struct Share {
    Sequence* sequence;
    AnswerSteps::Chunk read = {};  // of its tokens; empty: it answers
    int draft = 0;                 // tokens that are verified behind its next one
    Stop why = Stop::kNone;        // after Run: why it does not go on
    double sampling_s = 0;         // after Run: of masks, and of drawing tokens

    bool answers() const { return read.tokens.empty(); }
    int tokens() const { return answers() ? 1 + draft : base::IntSize(read.tokens); }
  };
  // Has one that answers draft up to `most` tokens, as probable as `needed`, for the next step.
  void Draft(Share& share, int most, double needed);
  // Has a slice of time for the mask of each sequence's next token, in their order, of the first in
  // any case and of others for `seconds`. Those that are not masked take no part in a step: a mask
  // may take dozens of slices.
  void MakeMasks(std::span<Sequence* const> sequences, double seconds);
  bool MakeMask(Sequence& s);
  static bool IsMasked(const Sequence& s) { return s.lane == nullptr || s.lane->masked(); }
  // Computes a step and gives what comes of it; returns its seconds. Requires: sequences of the
  // same modes; none reads where the modes lose something and another one answers; as many tokens
  // and logits as the transformer takes; room for them in the pool.
  double Run(std::span<Share> shares);
  // The sequence goes on elsewhere, or has ended.
  void Leave(Sequence& sequence);
  // Of all sequences.
  const SpecUsage& drafted() const { return drafted_; }

 private:
  // Its lane, which it has from now on.
  Lane& LaneOf(Sequence& s);
  int DraftsMax(const Request& request) const;
  void Give(Share& share, std::span<const float> logits);
  exec::StepResult<std::span<const float>> Forward(std::span<const Share> shares);
  void Take(std::span<Share> shares, std::span<const float> logits);
  void DrawAll();
  void Count(std::span<const Share> shares, const StepTimer& timer);

  exec::Transformer& transformer_;
  base::WorkerPool& pool_;
  const AnswerSteps& answers_;
  adapt::FfnGovernor& governor_;
  const int capacity_;
  const int drafts_max_;
  std::vector<std::unique_ptr<Lane>> free_lanes_;
  DraftRecord record_;
  SpecUsage drafted_;
  exec::Transformer::Step step_ = exec::Transformer::Step::kDecode;  // of the last Forward
  int kept_ = 0;  // tokens of answers that it decided
  std::vector<std::unique_ptr<sampling::SamplerScratch>> scratch_;  // [threads]
  std::vector<exec::Transformer::Part> parts_;
  std::vector<int> step_tokens_;  // of those that answer
  struct Draw {
    Share* share;
    std::span<const float> logits;  // [1 + draft, V]
  };
  std::vector<Draw> draws_;
  std::vector<Lane*> masks_;  // that are made
};

}  // namespace thermocline::sched
