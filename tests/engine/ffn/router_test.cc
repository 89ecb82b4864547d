// A router's choices and weights are those of the definition in double precision.
#include "engine/ffn/router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace thermocline::ffn {
namespace {

using model::ExpertConfig;
using model::Gating;
using model::GroupScore;

constexpr int kRouted = 16, kRoutedUsed = 4;

ExpertConfig RouterOf(const model::RouterConfig& router) {
  return {.num_experts = kRouted, .num_experts_per_tok = kRoutedUsed, .router = router};
}

std::vector<float> RouterLogits(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> out(kRouted);
  for (float& z : out) z = normal(random);
  return out;
}

std::vector<ChosenExpert> Chosen(const ExpertConfig& config, const std::vector<float>& logits,
                                 const float* bias = nullptr) {
  Router router(config);
  std::vector<ChosenExpert> out(static_cast<std::size_t>(config.num_experts_per_tok));
  router.Choose(logits, bias, out);
  return out;
}

// The definition, by sorting.
std::vector<double> Gates(const ExpertConfig& config, const std::vector<float>& logits) {
  std::vector<double> out(logits.begin(), logits.end());
  double sum = 0;
  for (const double z : out) sum += std::exp(z);
  for (double& z : out) {
    if (config.router.gating == Gating::kSoftmax) z = std::exp(z) / sum;
    if (config.router.gating == Gating::kSigmoid) z = 1 / (1 + std::exp(-z));
  }
  return out;
}

std::vector<int> BestOf(const std::vector<double>& scores, std::size_t count) {
  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  order.resize(count);
  return order;
}

void LeaveBestGroups(const ExpertConfig& config, std::vector<double>& scores) {
  const auto groups = static_cast<std::size_t>(config.router.groups);
  const std::size_t size = scores.size() / groups;
  std::vector<double> of_group;
  for (std::size_t g = 0; g < groups; ++g) {
    std::vector<double> sorted(scores.begin() + static_cast<std::ptrdiff_t>(g * size),
                               scores.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(sorted.rbegin(), sorted.rend());
    of_group.push_back(sorted[0] +
                       (config.router.group_score == GroupScore::kTopTwo ? sorted[1] : 0));
  }
  const auto best = BestOf(of_group, static_cast<std::size_t>(config.router.groups_used));
  for (std::size_t e = 0; e < scores.size(); ++e)
    if (std::find(best.begin(), best.end(), static_cast<int>(e / size)) == best.end())
      scores[e] = -1e9;
}

void ExpectDefinition(const ExpertConfig& config, const std::vector<float>& bias) {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    const std::vector<float> logits = RouterLogits(seed);
    const std::vector<double> gates = Gates(config, logits);
    std::vector<double> scores = gates;
    for (std::size_t e = 0; e < bias.size(); ++e) scores[e] += static_cast<double>(bias[e]);
    if (config.router.groups > 1) LeaveBestGroups(config, scores);
    std::vector<int> expected = BestOf(scores, kRoutedUsed);
    std::sort(expected.begin(), expected.end());
    double sum = 0;
    const bool softmax = config.router.gating == Gating::kSoftmaxOfChosen;
    const auto raw = [&](int e) {
      const double gate = gates[static_cast<std::size_t>(e)];
      return softmax ? std::exp(gate) : gate;
    };
    for (const int e : expected) sum += raw(e);
    const auto chosen = Chosen(config, logits, bias.empty() ? nullptr : bias.data());
    for (std::size_t i = 0; i < kRoutedUsed; ++i) {
      EXPECT_EQ(chosen[i].expert, expected[i]) << "seed " << seed;
      const double divisor = softmax || config.router.normalise ? sum : 1;
      EXPECT_NEAR(static_cast<double>(chosen[i].weight),
                  raw(expected[i]) / divisor * config.router.scale, 1e-5);
    }
  }
}

TEST(Router, ChoosesAndWeighsAsDefined) {
  std::vector<float> bias = RouterLogits(99);
  for (const Gating gating : {Gating::kSoftmax, Gating::kSigmoid, Gating::kSoftmaxOfChosen}) {
    for (const bool normalise : {false, true}) {
      model::RouterConfig router{.gating = gating, .normalise = normalise, .scale = 2.5};
      ExpectDefinition(RouterOf(router), {});
      ExpectDefinition(RouterOf(router), bias);
      router.groups = 4;
      router.groups_used = 2;
      for (const GroupScore score : {GroupScore::kMax, GroupScore::kTopTwo}) {
        router.group_score = score;
        ExpectDefinition(RouterOf(router), bias);
      }
    }
  }
}

TEST(Router, TiesGoToTheLowerNumber) {
  const auto chosen = Chosen(RouterOf({}), std::vector<float>(kRouted, 0.5F));
  for (int i = 0; i < kRoutedUsed; ++i) {
    EXPECT_EQ(chosen[static_cast<std::size_t>(i)].expert, i);
    EXPECT_FLOAT_EQ(chosen[static_cast<std::size_t>(i)].weight, 1.0F / kRouted);
  }
}

TEST(Router, NeverChoosesAnExpertTwice) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), kNone}) {
    for (const Gating gating : {Gating::kSoftmax, Gating::kSigmoid, Gating::kSoftmaxOfChosen}) {
      std::vector<float> logits(kRouted, odd);
      logits[9] = 1;
      const auto chosen =
          Chosen(RouterOf({.gating = gating, .groups = 4, .groups_used = 1}), logits);
      for (std::size_t i = 1; i < chosen.size(); ++i)
        EXPECT_LT(chosen[i - 1].expert, chosen[i].expert);
    }
  }
}

TEST(Router, ASumBelowTheLeastIsNotDividedBy) {
  model::RouterConfig router{.gating = Gating::kSigmoid, .normalise = true, .norm_min = 0.5};
  const auto chosen = Chosen(RouterOf(router), std::vector<float>(kRouted, -10.0F));
  EXPECT_NEAR(static_cast<double>(chosen[0].weight), 1 / (1 + std::exp(10.0)) / 0.5, 1e-9);
}

}  // namespace
}  // namespace thermocline::ffn
