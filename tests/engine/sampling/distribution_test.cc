// Draws follow their weights, are independent where they should be, and equal where not.
#include "engine/sampling/distribution.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "engine/sampling/sampler.h"
#include "tests/engine/sampling/chi_square.h"
#include "tests/engine/sampling/coupling.h"

namespace thermocline::sampling {
namespace {

Distribution Make(int tokens, const std::function<double(int)>& weight) {
  Distribution d;
  for (int token = 0; token < tokens; ++token) d.Add(token, weight(token));
  return d;
}

// Weights of many magnitudes: exp of `spread` times a normal variable.
Distribution Random(int tokens, double spread, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  return Make(tokens, [&](int) { return std::exp(spread * normal(random)); });
}

std::vector<double> Probabilities(const Distribution& d) {
  std::vector<double> out;
  for (const double weight : d.weights) out.push_back(weight / d.total);
  return out;
}

// Counts of draw(i) for i < n, each in [0, cells).
std::vector<int> Counts(int n, std::size_t cells, const std::function<int(std::uint64_t)>& draw) {
  std::vector<int> counts(cells);
  for (int i = 0; i < n; ++i) ++counts[static_cast<std::size_t>(draw(static_cast<unsigned>(i)))];
  return counts;
}

TEST(ChiSquare, ShowsTheDifferenceItPromises) {
  constexpr int kCells = 20, kRuns = 400;
  constexpr double kDifference = 0.05;
  const int draws = DrawsToShow(kDifference, kCells);
  const std::vector<double> p(kCells, 1.0 / kCells);
  std::vector<double> off = p;  // the hardest to detect: every cell is off by the same share
  for (std::size_t i = 0; i < off.size(); ++i) off[i] *= 1 + (i % 2 == 0 ? 2 : -2) * kDifference;
  std::mt19937_64 random(1);
  std::uniform_int_distribution<int> uniform(0, kCells - 1);
  int false_alarms = 0, found = 0;
  for (int run = 0; run < kRuns; ++run) {
    const auto counts = Counts(draws, kCells, [&](std::uint64_t) { return uniform(random); });
    false_alarms += ChiSquare(counts, p).passes() ? 0 : 1;
    found += ChiSquare(counts, off).passes() ? 0 : 1;
  }
  EXPECT_EQ(false_alarms, 0);
  EXPECT_GE(found, kRuns * 97 / 100);  // of 99%; sigma is 2 runs
}

TEST(Pick, FollowsTheWeights) {
  const Distribution shapes[] = {
      Make(2, [](int i) { return 1.0 + 2 * i; }), Make(20, [](int) { return 0.3; }),
      Make(12, [](int i) { return std::pow(0.5, i); }),
      Make(30, [](int i) { return i == 29 ? 40.0 : 1.0; }), Random(50, 1.5, 1)};
  for (const Distribution& d : shapes) {
    const int draws = DrawsToShow(0.01, static_cast<int>(d.size()));
    const auto by_seed = Counts(draws, d.size(), [&](std::uint64_t i) {
      return SeededRandomSource(i).Pick(d, 17, Stream::kToken);
    });
    const auto by_position = Counts(draws, d.size(), [&](std::uint64_t i) {
      return SeededRandomSource(5).Pick(d, i, Stream::kCorrection);
    });
    for (const auto& counts : {by_seed, by_position}) {
      const auto test = ChiSquare(counts, Probabilities(d));
      EXPECT_TRUE(test.passes()) << test.statistic << " in " << test.cells << " cells";
    }
  }
}

TEST(Pick, AcceptsWithTheProbability) {
  const int draws = DrawsToShow(0.01, 2);
  for (const double p : {0.02, 0.3, 0.5, 0.9}) {
    const auto counts = Counts(
        draws, 2, [&](std::uint64_t i) { return SeededRandomSource(i).Accept(p, i / 7) ? 0 : 1; });
    EXPECT_TRUE(ChiSquare(counts, {p, 1 - p}).passes()) << p << ": " << counts[0];
  }
  for (std::uint64_t seed = 0; seed < 1000; ++seed)
    EXPECT_FALSE(SeededRandomSource(seed).Accept(0, seed));
}

TEST(Pick, DrawsForDifferentThingsAreIndependent) {
  constexpr int kTokens = 6;
  const Distribution d = Make(kTokens, [](int i) { return 1.0 + i; });
  Distribution others;  // the same weights for other tokens
  for (int i = 0; i < kTokens; ++i) others.Add(100 + i, d.weights[static_cast<std::size_t>(i)]);
  const auto pick = [&](std::uint64_t seed, std::uint64_t position, Stream stream) {
    return SeededRandomSource(seed).Pick(d, position, stream);
  };
  // Accept's variable in sixths: below 1/6, 2/6, ...
  const auto sixth = [](std::uint64_t seed, std::uint64_t position) {
    int at = 0;
    while (at < kTokens - 1 && !SeededRandomSource(seed).Accept((at + 1.0) / kTokens, position))
      ++at;
    return at;
  };
  const auto p = Probabilities(d), even = std::vector<double>(kTokens, 1.0 / kTokens);
  struct Pair {
    const char* what;
    std::function<int(std::uint64_t)> first, second;
    const std::vector<double>& second_probabilities;
  };
  const auto token_at_3 = [&](std::uint64_t i) { return pick(i, 3, Stream::kToken); };
  const Pair pairs[] = {
      {"positions", token_at_3, [&](auto i) { return pick(i, 4, Stream::kToken); }, p},
      {"seeds", token_at_3, [&](auto i) { return pick(i + 1, 3, Stream::kToken); }, p},
      {"seed and position", token_at_3, [&](auto i) { return pick(i + 1, 2, Stream::kToken); }, p},
      {"correction", token_at_3, [&](auto i) { return pick(i, 3, Stream::kCorrection); }, p},
      {"acceptance", token_at_3, [&](auto i) { return sixth(i, 3); }, even},
      {"correction and acceptance", [&](auto i) { return pick(i, 3, Stream::kCorrection); },
       [&](auto i) { return sixth(i, 3); }, even},
      {"tokens", token_at_3,
       [&](auto i) { return SeededRandomSource(i).Pick(others, 3, Stream::kToken) - 100; }, p},
      {"positions of a text", [&](auto i) { return pick(9, i, Stream::kToken); },
       [&](auto i) { return pick(9, i + 1, Stream::kToken); }, p},
  };
  for (const Pair& pair : pairs) {
    std::vector<double> joint;
    for (const double first : p)
      for (const double second : pair.second_probabilities) joint.push_back(first * second);
    const int draws = DrawsToShow(0.01, kTokens * kTokens);
    const auto counts = Counts(draws, joint.size(), [&](std::uint64_t i) {
      return pair.first(i) * kTokens + pair.second(i);
    });
    const auto test = ChiSquare(counts, joint);
    EXPECT_TRUE(test.passes()) << pair.what << ": " << test.statistic;
  }
}

TEST(Rank, TakesOneAfterTheOtherOut) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    const Distribution all = Random(40, 2, seed);
    for (std::uint64_t position = 0; position < 200; ++position) {
      const SeededRandomSource random(seed);
      std::vector<int> ranked;
      random.Rank(all, position, Stream::kToken, 8, ranked);
      ASSERT_EQ(ranked.size(), 8u);
      Distribution left = all;
      for (const int token : ranked) {
        ASSERT_EQ(random.Pick(left, position, Stream::kToken), token);
        const Distribution from = left;
        left.Clear();
        for (std::size_t i = 0; i < from.size(); ++i)
          if (from.tokens[i] != token) left.Add(from.tokens[i], from.weights[i]);
      }
    }
  }
}

TEST(Rank, GivesNoMoreThanThereAre) {
  const Distribution three = Random(3, 1, 1);
  std::vector<int> ranked = {7};
  SeededRandomSource(1).Rank(three, 0, Stream::kToken, 9, ranked);
  EXPECT_EQ(ranked.size(), 3u);
  SeededRandomSource(1).Rank(three, 0, Stream::kToken, 0, ranked);
  EXPECT_TRUE(ranked.empty());
}

// The formula of distribution.h, with every logarithm computed.
int SlowPick(const Distribution& d, std::uint64_t seed, std::uint64_t position, Stream stream) {
  const auto mix = [](std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  };
  const std::uint64_t golden = 0x9E3779B97F4A7C15U;
  const std::uint64_t at = mix(seed + (position + 1) * golden),
                      key =
                          mix(at ^ (static_cast<std::uint64_t>(stream) + 1) * 0xD1B54A32D192ED03U);
  double best = std::numeric_limits<double>::infinity();
  int token = -1;
  for (std::size_t i = 0; i < d.size(); ++i) {
    const auto id = static_cast<std::uint64_t>(d.tokens[i]);
    const double u = (static_cast<double>(mix(key + (id + 1) * golden) >> 11) + 0.5) * 0x1p-53;
    const double time = -std::log(u) / d.weights[i];
    if (time > best || (time == best && d.tokens[i] > token)) continue;
    best = time;
    token = d.tokens[i];
  }
  return token;
}

TEST(Pick, OfALargeVocabularyIsTheFormulas) {
  for (const double spread : {0.0, 1.0, 4.0}) {
    Distribution d = Random(50000, spread, 3);
    Distribution reversed;
    for (std::size_t i = d.size(); i-- > 0;) reversed.Add(d.tokens[i], d.weights[i]);
    for (std::uint64_t position = 0; position < 40; ++position) {
      const int token = SlowPick(d, 11, position, Stream::kCorrection);
      EXPECT_EQ(SeededRandomSource(11).Pick(d, position, Stream::kCorrection), token);
      EXPECT_EQ(SeededRandomSource(11).Pick(reversed, position, Stream::kCorrection), token);
    }
  }
}

// The guarantee for drafts that draw with the target's random numbers.
TEST(Coupling, TheSameTokenComesAsOftenAsTheFormulaSays) {
  const int draws = DrawsToShow(0.01, 2);
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    const Distribution p = Random(30, 1.5, seed);
    Distribution q;
    const Distribution noise = Random(30, 0.2 * static_cast<double>(seed), seed + 50);
    for (std::size_t i = seed; i < p.size(); ++i)  // the draft's nucleus differs
      q.Add(p.tokens[i], p.weights[i] * noise.weights[i]);
    const auto both = SideBySide(p, q);
    const double tv = TotalVariation(both), same = SameToken(both);
    EXPECT_GE(same, (1 - tv) / (1 + tv));
    EXPECT_LE(same, 1 - tv);
    double sum = 0;
    for (const int token : p.tokens) sum += SameTokenIs(p, q, token);
    EXPECT_NEAR(same, sum, 1e-12);
    const auto counts = Counts(draws, 2, [&](std::uint64_t i) {
      const SeededRandomSource random(i);
      return random.Pick(p, 2, Stream::kToken) == random.Pick(q, 2, Stream::kToken) ? 0 : 1;
    });
    EXPECT_TRUE(ChiSquare(counts, {same, 1 - same}).passes()) << counts[0] << " of " << draws;
  }
}

// Means over random pairs of 50 tokens: the table of docs/speculation-sampling.md.
TEST(Coupling, Table) {
  constexpr int kPairs = 2000;
  struct Row {
    int pairs = 0;
    double tv = 0, same = 0, promised = 0;
  };
  std::vector<Row> rows(10);
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> spread(0, 3);
  for (std::uint64_t i = 0; i < kPairs; ++i) {
    const Distribution p = Random(50, 2, 2 * i), noise = Random(50, spread(random), 2 * i + 1);
    const Distribution q = Make(50, [&](int token) {
      const auto at = static_cast<std::size_t>(token);
      return p.weights[at] * noise.weights[at];
    });
    const auto both = SideBySide(p, q);
    const double tv = TotalVariation(both), same = SameToken(both);
    EXPECT_GE(same, (1 - tv) / (1 + tv) - 1e-12);
    EXPECT_LE(same, 1 - tv + 1e-12);
    Row& row = rows[static_cast<std::size_t>(tv * 10)];
    ++row.pairs;
    row.tv += tv;
    row.same += same;
    row.promised += (1 - tv) / (1 + tv);
  }
  std::printf("pairs  TV     rejection  same text  its bound\n");
  for (const Row& row : rows) {
    if (row.pairs < 20) continue;
    const double n = row.pairs;
    std::printf("%5d  %.3f  %.3f      %.3f      %.3f\n", row.pairs, row.tv / n, 1 - row.tv / n,
                row.same / n, row.promised / n);
  }
}

// A rejected draft does not affect the penalties.
TEST(Retract, RestoresTheDistributionToTheBit) {
  constexpr int kVocabulary = 12;
  const SamplingParams params{.temperature = 0.7,
                              .top_p = 0.95,
                              .repetition_penalty = 1.3,
                              .presence_penalty = 0.4,
                              .frequency_penalty = 0.25,
                              .logit_bias = {{2, 0.5F}}};
  const std::vector<int> prompt = {1, 3, 3, 7};
  std::mt19937_64 random(4);
  std::vector<float> logits(kVocabulary);
  Sampler sampler(kVocabulary, 64), fresh(kVocabulary, 64);
  for (int run = 0; run < 200; ++run) {
    sampler.Begin(params, prompt);
    std::vector<int> accepted;
    for (int step = 0; step < 60; ++step) {
      if (random() % 5 < 3 || accepted.empty()) {
        accepted.push_back(static_cast<int>(random() % kVocabulary));
        sampler.Accept(accepted.back());
      } else {
        accepted.pop_back();
        sampler.Retract();
      }
    }
    fresh.Begin(params, prompt);
    for (const int token : accepted) fresh.Accept(token);
    for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 200 - 2;
    const Distribution got = sampler.Compute(logits);
    const Distribution& expected = fresh.Compute(logits);
    ASSERT_EQ(got.tokens, expected.tokens);
    ASSERT_EQ(got.weights, expected.weights);
    ASSERT_EQ(got.total, expected.total);
    ASSERT_TRUE(std::equal(accepted.begin(), accepted.end(), sampler.accepted().begin(),
                           sampler.accepted().end()));
  }
}

}  // namespace
}  // namespace thermocline::sampling
