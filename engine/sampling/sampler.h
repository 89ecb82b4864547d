// Computes the distribution of the next token from logits, and draws a token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/api/sampling_params.h"
#include "engine/grammar/matcher.h"
#include "engine/sampling/candidates.h"
#include "engine/sampling/distribution.h"
#include "engine/sampling/dry_penalty.h"
#include "engine/sampling/thought_budget.h"

namespace thermocline::sampling {

// A sampler's buffers that hold no state between tokens: samplers that run one after the other may
// share them.
class SamplerScratch {
 public:
  explicit SamplerScratch(int vocab_size);
  static std::size_t Bytes(int vocab_size);

 private:
  friend class Sampler;
  std::vector<float> logits_;  // [V] after bias and penalties
  Candidates candidates_;
  Distribution distribution_;
};

// Decode or draft thread only. Buffers are sized at construction; after it nothing allocates.
class Sampler {
 public:
  // `tokens_max`: maximum tokens of a sequence, including its prompt. `own_scratch`: allocates a
  // scratch; otherwise UseScratch must provide one.
  explicit Sampler(int vocab_size, int tokens_max = 0, bool own_scratch = true);
  // Returns the bytes of its buffers, including its scratch.
  static std::size_t Bytes(int vocab_size, int tokens_max, bool own_scratch = true);
  // Returns the bytes of several samplers that share the scratch of their threads. Their tokens are
  // bounded by the memory for the KV cache, which is for about two sequences of `tokens_max`.
  static std::size_t BytesOf(int samplers, int threads, int vocab_size, int tokens_max);
  // Uses this scratch from now on; the result of the last Compute becomes invalid.
  void UseScratch(SamplerScratch& scratch) { scratch_ = &scratch; }
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Starts a sequence: `prompt` counts for the repetition penalty and for DRY. Copies `params`,
  // whose lists must not be longer than the vocabulary nor contain token ids outside it.
  void Begin(const SamplingParams& params, std::span<const int> prompt);
  // The distribution of the next token after the accepted ones; a single token if the temperature
  // is 0. Valid until the next call. Requires: logits [V].
  const Distribution& Compute(std::span<const float> logits);
  // Writes the `count` tokens of the last Compute with the largest adjusted logits, largest first,
  // lowest id first among equals. Returns their number. Requires: count <= 8.
  struct Scored {
    float logit;
    int token;
  };
  int Top(int count, Scored* out) const;
  // Draws the token for `position` (tokens before it in the sequence).
  int Sample(std::span<const float> logits, int position);
  // Accept counts `token` as generated. Retract undoes the last Accept.
  void Accept(int token);
  void Retract();
  // Continues computing the grammar's mask for a slice of time. Returns true if it is complete;
  // otherwise Compute completes it.
  bool MakeMask();
  // Returns the seconds spent in Compute and MakeMask since the last call.
  double TakeSeconds() { return std::exchange(seconds_, 0); }
  // Writes the tokens that must come next, of the end of reasoning or of the text that a grammar
  // forces, as many as fit `out`. Returns their number.
  int Forced(std::span<int> out);
  // True if the grammar allows no token after the first `count` accepted tokens.
  bool IsOver(std::size_t count) const { return matcher_.on() && matcher_.IsOver(count); }
  // True if the grammar did not allow one of them.
  bool IsLost(std::size_t count) const { return matcher_.on() && matcher_.IsLost(count); }
  // The reason why the last Compute had to ignore the grammar; null: it did not.
  const char* failure() const { return failure_; }
  void CountForced(int proposed, int accepted);
  // Tokens accepted since Begin.
  std::span<const int> accepted() const { return std::span(tokens_).subspan(prompt_tokens_); }

  const SamplingParams& params() const { return params_; }
  const RandomSource& random_source() const { return random_; }

 private:
  void Adjust();
  void Force(int token);
  void HoldBackEnd();
  void ApplyGrammar();
  void KeepTop();

  SamplingParams params_;
  SeededRandomSource random_;
  DryPenalty dry_;  // reads params_
  std::unique_ptr<SamplerScratch> own_scratch_;
  SamplerScratch* scratch_;
  const std::size_t vocab_;
  std::vector<int> generated_counts_;  // [V]
  std::vector<bool> in_prompt_;        // [V]
  std::vector<int> touched_;           // tokens whose entries above may be nonzero
  std::vector<int> tokens_;            // the prompt's, if DRY is on, and the accepted ones
  std::size_t prompt_tokens_ = 0;      // of tokens_
  std::vector<float> held_back_;       // logits of params_.end_tokens
  grammar::Matcher matcher_;           // of params_.constraint
  ThoughtBudget thought_;              // of params_.thought
  bool masked_ = false;                // logits_ are masked by the grammar
  const char* failure_ = nullptr;
  double seconds_ = 0;
};

// log softmax(logits)[token].
double LogProbability(std::span<const float> logits, int token);

}  // namespace thermocline::sampling
