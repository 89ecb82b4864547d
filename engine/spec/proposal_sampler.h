// Turns logits into a proposal.
#pragma once

#include <span>
#include <vector>

#include "engine/sampling/sampler.h"
#include "engine/spec/draft.h"

namespace thermocline::spec {

// Creates the proposals of sources that draw from logits: token, alternatives and confidence.
class ProposalSampler {
 public:
  ProposalSampler(int vocab_size, int capacity) : sampler_(vocab_size, capacity) {}
  // `width`: number of alternatives. `distributions`: proposals include the distributions they were
  // drawn from.
  void Begin(std::span<const int> prompt, const SamplingParams& params, int width,
             bool distributions);
  // Sets the tokens generated so far, on which penalties depend. Tokens that no longer match are
  // retracted.
  void Accept(std::span<const int> generated);
  // Requires: logits [V] of the token after the followed ones, at `position`.
  void Draw(std::span<const float> logits, int position, Proposal& proposal);
  // Sets the source of random numbers, for tests that record draws. Null: the seed's.
  void SetRandomSource(const sampling::RandomSource* random) { random_ = random; }

 private:
  void DrawGreedy(Proposal& proposal);
  void DrawSampled(const sampling::Distribution& from, int position, Proposal& proposal);

  sampling::Sampler sampler_;
  const sampling::RandomSource* random_ = nullptr;
  std::vector<int> ranked_;
  int width_ = 0;
  bool distributions_ = false;
};

}  // namespace thermocline::spec
