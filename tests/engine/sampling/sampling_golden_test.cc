// Typical sampling, DRY, min_tokens and the order of all steps, compared with an independent
// implementation (tests/golden/make_sampling.py).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/sampling/sampler.h"

namespace thermocline::sampling {
namespace {

std::vector<int> Ints(const Json& array) {
  std::vector<int> out;
  for (const Json& each : array.as_array()) out.push_back(static_cast<int>(each.as_int()));
  return out;
}

SamplingParams ParamsOf(const Json& c) {
  const auto number = [&](const char* key) { return c.Find(key)->as_double(); };
  const auto integer = [&](const char* key) { return static_cast<int>(c.Find(key)->as_int()); };
  SamplingParams p;
  p.temperature = number("temperature");
  p.top_k = integer("top_k");
  p.top_p = number("top_p");
  p.min_p = number("min_p");
  p.typical_p = number("typical_p");
  p.dry_multiplier = number("dry_multiplier");
  p.dry_base = number("dry_base");
  p.dry_allowed_length = integer("dry_allowed_length");
  p.dry_penalty_last_n = integer("dry_penalty_last_n");
  p.dry_breakers = Ints(*c.Find("dry_breakers"));
  p.min_tokens = integer("min_tokens");
  p.end_tokens = Ints(*c.Find("end_tokens"));
  for (const Json& pair : c.Find("logit_bias")->as_array())
    p.logit_bias.emplace_back(static_cast<int>(pair.as_array()[0].as_int()),
                              static_cast<float>(pair.as_array()[1].as_double()));
  return p;
}

std::vector<double> Expected(const Json& c, std::size_t vocab_size) {
  std::vector<double> out(vocab_size);
  for (const auto& [token, probability] : c.Find("expected")->as_object())
    out[std::stoul(token)] = probability.as_double();
  return out;
}

TEST(SamplingGolden, DistributionsAreThoseOfTheDefinitions) {
  const auto text = base::ReadFileToString(SOURCE_DIR "/tests/golden/sampling.json");
  ASSERT_TRUE(text.ok());
  const auto cases = base::ParseJson(*text);
  ASSERT_TRUE(cases.ok());
  Sampler sampler(24, 160);  // shared, since sequences must not leave state
  int index = 0;
  for (const Json& c : cases->as_array()) {
    const SamplingParams params = ParamsOf(c);
    ASSERT_TRUE(ValidateSampling(params).ok());
    const std::vector<int> tokens = Ints(*c.Find("tokens"));
    std::vector<float> logits;
    for (const Json& x : c.Find("logits")->as_array())
      logits.push_back(static_cast<float>(x.as_double()));
    const auto prompt = static_cast<std::size_t>(c.Find("prompt_tokens")->as_int());
    sampler.Begin(params, std::span(tokens).first(prompt));
    for (std::size_t i = prompt; i < tokens.size(); ++i) {
      // A draft that is rejected in between leaves no state.
      for (const int refused : {1, 2, 1}) sampler.Accept(refused);
      sampler.Compute(logits);
      for (int n = 0; n < 3; ++n) sampler.Retract();
      sampler.Accept(tokens[i]);
    }
    const Distribution& got = sampler.Compute(logits);
    const std::vector<double> expected = Expected(c, logits.size());
    for (int token = 0; token < 24; ++token)
      EXPECT_NEAR(got.Probability(token), expected[static_cast<std::size_t>(token)], 1e-5)
          << "case " << index << ", token " << token;
    ++index;
  }
  EXPECT_EQ(index, 120);
}

TEST(SamplingGolden, EndTokensComeAfterTheLeastNumberOfTokens) {
  Sampler sampler(3, 8);
  const std::vector<float> logits = {1, 5, 2};
  for (const double temperature : {0.0, 1.0}) {
    sampler.Begin(
        {.temperature = temperature, .min_tokens = 2, .end_tokens = {1}, .logit_bias = {}}, {});
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(sampler.Compute(logits).Probability(1), 0);
      sampler.Accept(2);
    }
    EXPECT_GT(sampler.Compute(logits).Probability(1), 0);
    sampler.Retract();
    EXPECT_EQ(sampler.Compute(logits).Probability(1), 0);
  }
}

TEST(SamplingGolden, AnEndTokenComesWhereNothingElseCan) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  Sampler sampler(3, 8);
  for (const double temperature : {0.0, 1.0}) {
    sampler.Begin({.temperature = temperature,
                   .typical_p = 0.5,
                   .min_tokens = 2,
                   .end_tokens = {1, 2, 1},
                   .logit_bias = {}},
                  {});
    EXPECT_EQ(sampler.Sample(std::vector<float>{kNever, -40, kNever}, 0), 1);
    // All tokens are equally impossible; one is returned anyway.
    const int any = sampler.Sample(std::vector<float>(3, kNever), 0);
    EXPECT_TRUE(any >= 0 && any < 3);
  }
}

TEST(SamplingGolden, LongRepetitionsStayFinite) {
  Sampler sampler(4, 4096);
  const std::vector<int> prompt(4000, 3);
  sampler.Begin({.temperature = 1,
                 .dry_multiplier = 100,
                 .dry_base = 100,
                 .dry_allowed_length = 1,
                 .logit_bias = {}},
                prompt);
  const Distribution& got = sampler.Compute(std::vector<float>{0, 0, 0, 50});
  EXPECT_EQ(got.Probability(3), 0);
  EXPECT_NEAR(got.Probability(0), 1.0 / 3, 1e-12);
}

}  // namespace
}  // namespace thermocline::sampling
