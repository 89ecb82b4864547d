// A client's parameters for sampling. They are checked by ValidateSampling when a request arrives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace thermocline {

namespace grammar {
class CompiledGrammar;
}
namespace sampling {
struct ThoughtLimit;
}

// Order of the steps: logit bias, penalties, DRY, grammar, temperature, top-k, typical, top-p,
// min-p, draw.
struct SamplingParams {
  double temperature = 1.0;  // 0 = greedy: the most probable token, the lowest id among equals
  int top_k = 0;             // keep the k most probable; 0 = all
  double top_p = 1.0;        // keep the smallest set with at least this probability
  double min_p = 0.0;        // keep tokens with at least min_p times the highest probability
  // Locally typical sampling: keep the smallest set, by distance of the surprise -log p from the
  // entropy, with at least this probability. Source: Meister et al. 2022.
  double typical_p = 1.0;
  double repetition_penalty =
      1.0;  // divides positive and multiplies negative logits of seen tokens (prompt too)
  double presence_penalty = 0.0;   // subtracted once from each generated token's logit
  double frequency_penalty = 0.0;  // subtracted for each time it was generated
  // DRY: a token that would continue a repetition of the last n >= dry_allowed_length tokens has
  // its logit lowered by dry_multiplier * dry_base^(n - dry_allowed_length). 0 = off.
  // Source: P. E. Weidmann 2024 (text-generation-webui, pull request 5677).
  double dry_multiplier = 0.0;
  double dry_base = 1.75;
  int dry_allowed_length = 2;
  int dry_penalty_last_n = -1;         // tokens searched for repetitions; -1 = all
  std::vector<int> dry_breakers = {};  // token ids, ascending, that end a repetition
  int min_tokens = 0;                  // tokens before which end_tokens are forbidden
  std::vector<int> end_tokens = {};    // the engine adds the model's own
  // The grammar of the answer; null = any text. Shared by choices, sequences and drafts.
  std::shared_ptr<const grammar::CompiledGrammar> constraint = {};
  // The limit of the answer's reasoning; null = none. Shared like the grammar.
  std::shared_ptr<const sampling::ThoughtLimit> thought = {};
  std::uint64_t seed = 0;                         // each draw depends only on position and seed
  std::vector<std::pair<int, float>> logit_bias;  // token id, added to its logit
};

// Preferred values of a model or operator for parameters that a request omits; empty = no
// preference.
struct SamplingDefaults {
  std::optional<double> temperature = {}, top_p = {}, min_p = {}, repetition_penalty = {};
  std::optional<int> top_k = {};

  bool empty() const { return *this == SamplingDefaults{}; }
  bool operator==(const SamplingDefaults&) const = default;
};

// The values of models whose makers recommend nothing. Source: llama.cpp's defaults.
inline constexpr SamplingDefaults kCommonSampling = {
    .temperature = 0.8, .top_p = 0.95, .min_p = 0.05, .top_k = 40};
// Returns the makers' recommendation, or kCommonSampling if there is none; the two are never mixed.
SamplingDefaults OrCommon(const SamplingDefaults& recommended);

// Returns `params` with the values of `defaults` applied.
SamplingParams WithDefaults(SamplingParams params, const SamplingDefaults& defaults);
// Returns the values of `first`, completed by those of `second`.
SamplingDefaults Merge(const SamplingDefaults& first, const SamplingDefaults& second);
// "temperature 0.7, top_p 0.9"; "" if no value is set.
std::string ToString(const SamplingDefaults& defaults);

// InvalidArgument naming the field, its value and its range.
Status ValidateSampling(const SamplingParams& params);

}  // namespace thermocline
