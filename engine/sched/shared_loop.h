// Steps that sequences share: the next tokens of answering sequences and prefill chunks of others,
// in one pass over the weights. A token has the same bits as when it is computed alone.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/adapt/ffn_governor.h"
#include "engine/base/worker_pool.h"
#include "engine/exec/transformer.h"
#include "engine/sched/answer_steps.h"

namespace thermocline::sched {

// Decode thread only. Borrows all its parameters. An answering sequence has a decoder from its
// first shared step until ReleaseDecoder.
class SharedLoop {
 public:
  struct Params {
    exec::Transformer& transformer;
    base::WorkerPool& pool;
    const AnswerSteps& answers;
    adapt::FfnGovernor& governor;
    int capacity = 0;  // maximum tokens of a sequence
    // Maximum draft tokens from an answer's own text, if its request does not set it; 0 = none.
    int drafts_max = 0;
  };
  explicit SharedLoop(const Params& params);

  // A sequence's part of a step.
  struct SequenceStep {
    Sequence* sequence;
    AnswerSteps::Chunk read = {};  // prefill chunk; empty: the sequence answers
    int draft = 0;                 // draft tokens that are verified after its next token
    Stop why = Stop::kNone;        // set by Run: the reason why it stops
    double sampling_s = 0;         // set by Run: time for masks and drawing tokens

    bool answers() const { return read.tokens.empty(); }
    int tokens() const { return answers() ? 1 + draft : base::IntSize(read.tokens); }
  };
  // Drafts up to `most` tokens of probability `needed` or more for an answering sequence's next
  // step.
  void Draft(SequenceStep& step, int most, double needed);
  // Spends one slice of time on the mask of each sequence's next token, in order: on the first one
  // in any case, and on others for `seconds`. Sequences with incomplete masks take no part in a
  // step: a mask may take dozens of slices.
  void MakeMasks(std::span<Sequence* const> sequences, double seconds);
  bool MakeMask(Sequence& s);
  static bool IsMasked(const Sequence& s) { return s.decoder == nullptr || s.decoder->masked(); }
  // Computes a step and delivers its tokens; returns its seconds. Requires: sequences of the same
  // modes; no prefill beside answers if a mode is lossy; no more tokens and logits than the
  // transformer takes; room for them in the pool.
  double Run(std::span<SequenceStep> steps);
  // Releases the sequence's decoder: it continues alone, or has ended.
  void ReleaseDecoder(Sequence& sequence);
  // Draft usage of all sequences.
  const SpecUsage& drafted() const { return drafted_; }

 private:
  // Returns its decoder, which is assigned on the first call.
  SequenceDecoder& DecoderOf(Sequence& s);
  int DraftsMax(const Request& request) const;
  void EmitTokens(SequenceStep& step, std::span<const float> logits);
  exec::StepResult<std::span<const float>> Forward(std::span<const SequenceStep> steps);
  void SplitLogits(std::span<SequenceStep> steps, std::span<const float> logits);
  void DrawAll();
  void Count(std::span<const SequenceStep> steps, const StepTimer& timer);

  exec::Transformer& transformer_;
  base::WorkerPool& pool_;
  const AnswerSteps& answers_;
  adapt::FfnGovernor& governor_;
  const int capacity_;
  const int drafts_max_;
  std::vector<std::unique_ptr<SequenceDecoder>> free_decoders_;
  DraftRecord record_;
  SpecUsage drafted_;
  exec::Transformer::Step step_ = exec::Transformer::Step::kDecode;  // of the last Forward
  int kept_ = 0;  // tokens of answers that the last step decided
  std::vector<std::unique_ptr<sampling::SamplerScratch>> scratch_;  // [threads]
  std::vector<exec::Transformer::Part> parts_;
  std::vector<int> step_tokens_;  // tokens of the answering sequences
  struct Draw {
    SequenceStep* step;
    std::span<const float> logits;  // [1 + draft, V]
  };
  std::vector<Draw> draws_;
  std::vector<SequenceDecoder*> masks_;  // decoders whose masks are computed
};

}  // namespace thermocline::sched
