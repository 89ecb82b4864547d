// From logits to the distribution of the next token, and to a token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/exec/distribution.h"
#include "engine/sampling_params.h"

namespace thermocline::exec {

// Decode or draft thread only. Buffers are sized at construction; after it nothing allocates.
class Sampler {
 public:
  // `tokens_max`: of a sequence, for Accept.
  explicit Sampler(int vocab_size, int tokens_max = 0);

  // Starts a sequence: `prompt` counts for the repetition penalty. Keeps a copy of `params`, whose
  // logit_bias must not be longer than the vocabulary.
  void Begin(const SamplingParams& params, std::span<const int> prompt);
  // The distribution of the next token behind those accepted: a single token with temperature 0.
  // Valid until the next call. Requires: logits [V].
  const Distribution& Compute(std::span<const float> logits);
  // Of the last Compute: the `count` tokens with the largest adjusted logits, largest first, lowest
  // id first among equals. Returns how many. Requires: count <= 8.
  struct Scored {
    float logit;
    int token;
  };
  int Top(int count, Scored* out) const;
  // Draws the token for `position` (tokens before it in the sequence).
  int Sample(std::span<const float> logits, int position);
  // Counts `token` as generated. Retract takes the last one back.
  void Accept(int token);
  void Retract();
  // Tokens accepted since Begin.
  std::span<const int> accepted() const { return accepted_; }

  const SamplingParams& params() const { return params_; }
  const Chance& chance() const { return chance_; }

 private:
  struct Candidate {
    float logit;
    int token;
  };
  void Adjust();
  void KeepTop();
  // Puts the `wanted` most probable candidates in order, knowing that the first `sorted` are.
  void SortFirst(std::size_t sorted, std::size_t wanted);
  std::size_t KeepNucleus(std::size_t kept, double mass, double max);

  SamplingParams params_;
  SeededChance chance_;
  std::vector<float> logits_;          // [V] after bias and penalties
  std::vector<Candidate> candidates_;  // [V]
  std::vector<double> weights_;        // [V] unnormalised probabilities of the kept candidates
  Distribution distribution_;
  std::vector<int> generated_counts_;  // [V]
  std::vector<bool> in_prompt_;        // [V]
  std::vector<int> touched_;           // tokens whose entries above may be other than zero
  std::vector<int> accepted_;
};

// log softmax(logits)[token].
double LogProbability(std::span<const float> logits, int token);

}  // namespace thermocline::exec
