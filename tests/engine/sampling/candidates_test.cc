// Truncations of large vocabularies, compared with those of a full sort.
#include "engine/sampling/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace thermocline::sampling {
namespace {

constexpr int kVocab = 5000;

// Many tokens have the same logit: logits differ in steps of a 64th.
std::vector<float> ManyLogits() {
  std::vector<float> logits(kVocab);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = std::round(std::sin(static_cast<float>(i) * 12.9898F) * 256) / 64;
  return logits;
}

// All ids, ordered by `before` of their logits; equal ones by the lower id.
template <typename Before>
std::vector<int> Sorted(const std::vector<float>& logits, Before before) {
  std::vector<int> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto of = [&](int id) { return logits[static_cast<std::size_t>(id)]; };
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return before(of(a), of(b)); });
  return ids;
}

std::vector<int> Ascending(std::vector<int> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

TEST(Candidates, TheMostProbableAreThoseOfAFullSort) {
  const std::vector<float> logits = ManyLogits();
  const std::vector<int> order = Sorted(logits, std::greater<>());
  Candidates candidates(kVocab);
  Distribution distribution;
  for (const std::size_t count :
       {1, 2, 77, 78, 79, 255, 2500, 4743, 4744, 4998, 4999, 5000, 6000}) {
    candidates.Collect(logits);
    candidates.KeepMostProbable(count);
    candidates.Weigh(Largest(logits), 2);
    candidates.WriteTo(distribution, 0);
    const auto kept = static_cast<std::ptrdiff_t>(std::min(count, order.size()));
    EXPECT_EQ(Ascending(distribution.tokens),
              Ascending(std::vector<int>(order.begin(), order.begin() + kept)))
        << count;
    for (std::size_t i = 0; i < distribution.size(); ++i) {
      const float logit = logits[static_cast<std::size_t>(distribution.tokens[i])];
      EXPECT_EQ(distribution.weights[i], std::exp((logit - double{Largest(logits)}) / 2));
    }
  }
}

TEST(Candidates, TheTypicalAreThoseOfAFullSort) {
  const std::vector<float> logits = ManyLogits();
  const double max = Largest(logits);
  double total = 0, mean = 0;
  for (const float logit : logits) total += std::exp((logit - max) / 2);
  for (const float logit : logits) mean += std::exp((logit - max) / 2) / total * (logit - max);
  const auto order = Sorted(logits, [&](float a, float b) {
    return std::abs(a - max - mean) < std::abs(b - max - mean);
  });
  Candidates candidates(kVocab);
  Distribution distribution;
  for (const double share : {0.0, 0.1, 0.5, 0.9, 0.999}) {
    candidates.Collect(logits);
    candidates.Weigh(max, 2);
    candidates.KeepTypical(share);
    candidates.WriteTo(distribution, 0);
    std::vector<int> expected;
    for (double sum = 0; expected.empty() || sum < share * total;) {
      const int token = order[expected.size()];
      expected.push_back(token);
      sum += std::exp((logits[static_cast<std::size_t>(token)] - max) / 2);
    }
    EXPECT_EQ(Ascending(distribution.tokens), Ascending(expected)) << share;
  }
}

TEST(Candidates, UnorderedLogitsLeaveAToken) {
  std::vector<float> logits(kVocab, std::nanf(""));
  Candidates candidates(kVocab);
  Distribution distribution;
  candidates.Collect(logits);
  candidates.KeepMostProbable(2000);
  candidates.Weigh(Largest(logits), 1);
  candidates.KeepTypical(0.5);
  candidates.KeepNucleus(0.5);
  candidates.WriteTo(distribution, 0.1);
  EXPECT_EQ(distribution.size(), 1u);
}

}  // namespace
}  // namespace thermocline::sampling
