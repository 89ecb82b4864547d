// A target and a draft with a few tokens, whose logits are a function of the sequence.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/sampling/sampler.h"
#include "engine/spec/verify.h"
#include "tests/engine/spec/enumerate.h"

namespace thermocline::spec {

inline constexpr int kToyEnd = 0;  // the token that ends a text
inline const Tokens kToyPrompt = {1, 2};
// The tolerance of probabilities: rounding of doubles, a few times per token.
inline constexpr long double kToyTolerance = 1e-15L;

// The relation of the draft's distributions to the target's.
enum class ToyPair { kEqual, kNear, kUnrelated, kDisjoint, kCertainDraft, kCertainTarget };
inline constexpr ToyPair kToyPairs[] = {ToyPair::kEqual,        ToyPair::kNear,
                                        ToyPair::kUnrelated,    ToyPair::kDisjoint,
                                        ToyPair::kCertainDraft, ToyPair::kCertainTarget};

struct Toy {
  int vocab_size = 5;
  ToyPair pair = ToyPair::kUnrelated;
  std::uint64_t seed = 1;

  // [V] logits after `sequence`.
  std::vector<float> Target(const Tokens& sequence) const {
    return Logits(sequence, false, pair == ToyPair::kCertainTarget);
  }
  std::vector<float> Draft(const Tokens& sequence) const {
    auto logits = Logits(sequence, pair != ToyPair::kEqual && pair != ToyPair::kNear,
                         pair == ToyPair::kCertainDraft);
    for (std::size_t i = 0; i < logits.size() && pair == ToyPair::kNear; ++i)
      logits[i] += 0.3F * Noise(sequence, i + 100);
    return logits;
  }

 private:
  // A value in [-1, 1), by sequence and token.
  float Noise(const Tokens& sequence, std::size_t token) const {
    std::uint64_t hash = seed * 0x9E3779B97F4A7C15U + token;
    const auto mix = [&hash] {
      hash = (hash ^ (hash >> 31)) * 0xBF58476D1CE4E5B9U;
      hash ^= hash >> 29;
    };
    mix();
    for (const int t : sequence) {
      hash += static_cast<std::uint64_t>(t) + 1;
      mix();
    }
    mix();
    return static_cast<float>(hash >> 40) * 0x1p-23F - 1;
  }
  std::vector<float> Logits(const Tokens& sequence, bool other, bool certain) const {
    std::vector<float> logits(static_cast<std::size_t>(vocab_size));
    const std::size_t parity = other ? 1 : 0, shift = other ? 50 : 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      logits[i] = 2 * Noise(sequence, i + shift) + (certain && i == 3 ? 200.0F : 0.0F);
      if (pair == ToyPair::kDisjoint && i % 2 != parity)
        logits[i] = -std::numeric_limits<float>::infinity();
    }
    return logits;
  }
};

// True if `sequence`, prompt and text, has `length` tokens of text or ended before.
inline bool ToyEnded(const Tokens& sequence, std::size_t length) {
  const std::size_t text = sequence.size() - kToyPrompt.size();
  return text == length || (text > 0 && sequence.back() == kToyEnd);
}
inline Tokens ToyTextOf(const Tokens& sequence) {
  return {sequence.begin() + static_cast<std::ptrdiff_t>(kToyPrompt.size()), sequence.end()};
}

// Plain decoding of the target.
inline Tokens PlainToyText(const Toy& toy, const SamplingParams& params, std::size_t length,
                           const sampling::RandomSource& random) {
  sampling::Sampler sampler(toy.vocab_size, 16);
  sampler.Begin(params, kToyPrompt);
  Tokens sequence = kToyPrompt;
  while (!ToyEnded(sequence, length)) {
    sequence.push_back(DrawToken(sampler.Compute(toy.Target(sequence)), random, sequence.size()));
    sampler.Accept(sequence.back());
  }
  return ToyTextOf(sequence);
}

// Every parameter alone, and all together. Requires: a vocabulary of at least five tokens.
inline std::vector<SamplingParams> ToySamplings() {
  const float banned = -std::numeric_limits<float>::infinity();
  return {{.logit_bias = {}},
          {.temperature = 0.6, .logit_bias = {}},
          {.temperature = 0, .logit_bias = {}},
          {.temperature = 1.5, .top_k = 3, .logit_bias = {}},
          {.top_p = 0.7, .logit_bias = {}},
          {.min_p = 0.3, .logit_bias = {}},
          {.repetition_penalty = 1.7, .logit_bias = {}},
          {.presence_penalty = 1.1, .frequency_penalty = 0.7, .logit_bias = {}},
          {.logit_bias = {{3, 1.5F}, {1, -100.0F}, {2, banned}}},
          {.temperature = 0.8,
           .top_k = 4,
           .top_p = 0.9,
           .min_p = 0.05,
           .repetition_penalty = 1.2,
           .presence_penalty = 0.3,
           .frequency_penalty = 0.2,
           .logit_bias = {{4, 0.7F}}}};
}

}  // namespace thermocline::spec
