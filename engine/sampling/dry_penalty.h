// DRY ("don't repeat yourself"): makes a token less likely the longer the repetition that it would
// continue.
//
// If the last n tokens also occur earlier in the text, the logit of the token that followed them
// there is lowered by dry_multiplier * dry_base^(n - dry_allowed_length), if n >=
// dry_allowed_length. n does not extend across a breaker and is at most 50; of several such places
// the longest counts. A breaker is never penalised.
// Source: P. E. Weidmann 2024, text-generation-webui, pull request 5677.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/api/sampling_params.h"

namespace thermocline::sampling {

// One thread at a time. Buffers are sized at construction; later calls do not allocate.
class DryPenalty {
 public:
  // `tokens_max`: maximum tokens of a sequence. Longer ones work, but allocate.
  DryPenalty(int vocab_size, int tokens_max);
  static std::size_t Bytes(int vocab_size, int tokens_max);  // of its buffers

  // Starts a sequence. `params` must outlive it.
  void Begin(const SamplingParams& params);
  // True if Begin's parameters include a penalty.
  bool on() const { return params_ != nullptr; }
  // Lowers the logits [V] of the token after `tokens` (the prompt's and the generated ones). The
  // time is proportional to the tokens searched. Requires: on().
  void Apply(std::span<const int> tokens, std::span<float> logits);

 private:
  void Match(std::span<const int> tokens, std::size_t limit);

  const SamplingParams* params_ = nullptr;
  std::vector<int> breakers_;  // tokens whose entries in breaks_ are set
  std::vector<bool> breaks_;   // [V]
  std::vector<int> matched_;   // [S] matched_[k]: tokens before the k last that equal the text's
                               // end
  std::vector<int> longest_;   // [V] repetition that each token would continue; 0 between calls
};

}  // namespace thermocline::sampling
