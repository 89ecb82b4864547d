// DRY ("don't repeat yourself"): makes a token less likely the longer the repetition it would go on
// with.
//
// Where the last n tokens also stand earlier in the text, the token that followed them there loses
// dry_multiplier * dry_base^(n - dry_allowed_length) of its logit, if n >= dry_allowed_length. n
// goes no further back than to a breaker and counts to 50; of several such places the longest
// counts. A breaker is never penalised.
// Source: P. E. Weidmann 2024, text-generation-webui, pull request 5677.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/api/sampling_params.h"

namespace thermocline::sampling {

// One thread at a time. Buffers are sized at construction; after it nothing allocates.
class DryPenalty {
 public:
  // `tokens_max`: of a sequence. Longer ones work, but allocate.
  DryPenalty(int vocab_size, int tokens_max);
  static std::size_t Bytes(int vocab_size, int tokens_max);  // of its buffers

  // Starts a sequence. `params` must live as long as it.
  void Begin(const SamplingParams& params);
  // True if Begin's parameters ask for a penalty.
  bool on() const { return params_ != nullptr; }
  // Lowers the logits [V] of the token behind `tokens` (the prompt's and those generated). Takes
  // time in proportion to the tokens looked back at. Requires: on().
  void Apply(std::span<const int> tokens, std::span<float> logits);

 private:
  void Match(std::span<const int> tokens, std::size_t limit);

  const SamplingParams* params_ = nullptr;
  std::vector<int> breakers_;  // whose entries in breaks_ are set
  std::vector<bool> breaks_;   // [V]
  std::vector<int> matched_;   // [S] matched_[k]: tokens that end k from the end as the text ends
  std::vector<int> longest_;   // [V] repetition that each token would go on with; 0 between calls
};

}  // namespace thermocline::sampling
