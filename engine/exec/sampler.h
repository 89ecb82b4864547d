// From logits to a token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling_params.h"

namespace thermocline::exec {

// A uniform number in [0, 1) that depends on seed and position alone, so that runs which compute
// positions in another order draw the same numbers. Source: SplitMix64's finaliser.
double UniformAt(std::uint64_t seed, std::uint64_t position);

// Decode thread only. Buffers are sized at construction; Begin and Sample allocate nothing.
class Sampler {
 public:
  explicit Sampler(int vocab_size);

  // Starts a sequence: `prompt` counts for the repetition penalty.
  void Begin(const SamplingParams& params, std::span<const int> prompt);
  // Draws the token for `position` (tokens before it in the sequence). Requires: logits [V]; params
  // as in Begin.
  int Sample(std::span<const float> logits, const SamplingParams& params, int position);
  // Counts `token` as generated.
  void Accept(int token);

 private:
  struct Candidate {
    float logit;
    int token;
  };
  void Adjust(const SamplingParams& params);
  std::size_t KeepTop(const SamplingParams& params);
  // Puts the `wanted` most probable candidates in order, knowing that the first `sorted` are.
  void SortFirst(std::size_t sorted, std::size_t wanted);
  std::size_t KeepNucleus(std::size_t kept, double mass, double max, double temperature);
  int Draw(std::size_t kept, double uniform) const;

  std::vector<float> logits_;          // [V] after bias and penalties
  std::vector<Candidate> candidates_;  // [V]
  std::vector<double> weights_;        // [V] unnormalised probabilities of the kept candidates
  std::vector<int> generated_counts_;  // [V]
  std::vector<bool> in_prompt_;        // [V]
  std::vector<int> touched_;           // tokens whose entries above are not zero
};

// log softmax(logits)[token].
double LogProbability(std::span<const float> logits, int token);

}  // namespace thermocline::exec
