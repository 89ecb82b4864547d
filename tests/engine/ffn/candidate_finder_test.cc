// Candidates are the neurons whose score reaches the threshold, for each token.
#include "engine/ffn/candidate_finder.h"

#include <gtest/gtest.h>

#include <climits>
#include <functional>

#include "tests/engine/ffn/small_network.h"

namespace thermocline::ffn {
namespace {

// Predictors of `ids`, in their order, and their scores by definition.
struct SomePredictors {
  static constexpr int kRank = 8;
  predictor::Predictors predictors;
  std::vector<std::uint64_t> planes;
  std::vector<float> fc1, fc2;                 // [R, D], [ids, R]
  std::vector<std::uint8_t> panels1, panels2;  // the same for the kernels

  SomePredictors(const SmallNetwork& network, const std::vector<int>& ids) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const auto words = static_cast<std::size_t>(kernels::SignWords(kHidden));
    planes.resize(words * ids.size());
    predictor::LayerPredictors& layer = predictors.layers.emplace_back();
    predictor::SignPredictor& sign = layer.sign.emplace();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      kernels::PackSigns(&network.layers[0].gate.values[static_cast<std::size_t>(ids[i]) * kHidden],
                         kHidden, planes.data() + i * words, nullptr);
      sign.thresholds.push_back(static_cast<int>(random() % 25) - 4);
    }
    const int rows = static_cast<int>(ids.size());
    sign.planes = {rows, kHidden, planes.data(), nullptr};
    fc1.resize(kRank * kHidden);
    fc2.resize(ids.size() * kRank);
    for (std::vector<float>* each : {&fc1, &fc2})
      for (float& value : *each) value = normal(random);
    layer.low_rank = predictor::LowRankRun{.fc1 = Panels(fc1, kRank, kHidden, panels1),
                                           .fc2 = Panels(fc2, rows, kRank, panels2),
                                           .threshold = 5};
  }

  static kernels::PackedMatrix Panels(const std::vector<float>& values, int rows, int cols,
                                      std::vector<std::uint8_t>& out) {
    out.resize(kernels::PackedBytes(kernels::DType::kF32, rows, cols));
    const std::size_t row_bytes = kernels::RowBytes(kernels::DType::kF32, cols);
    for (int r = 0; r < rows; r += kernels::kPanelRows) {
      const std::size_t at = static_cast<std::size_t>(r) * row_bytes;
      kernels::PackPanel(kernels::DType::kF32,
                         reinterpret_cast<const std::uint8_t*>(values.data()) + at,
                         std::min(kernels::kPanelRows, rows - r), cols, out.data() + at);
    }
    return {kernels::DType::kF32, rows, cols, out.data()};
  }

  // The sign prediction by definition for neuron `id`, which is at `place` among the ids.
  bool SignSays(const SmallNetwork& network, int id, std::size_t place, const float* x,
                float shift) const {
    double score = 0;
    for (int c = 0; c < kHidden; ++c)
      score += (network.layers[0].gate.at(id, c) < 0) == (x[c] < 0) ? 1 : -1;
    return score - static_cast<double>(shift) >= predictors.layers[0].sign->thresholds[place];
  }
  double Logit(std::size_t place, const float* x) const {
    double logit = 0;
    for (std::size_t r = 0; r < kRank; ++r) {
      double z = 0;
      for (std::size_t c = 0; c < kHidden; ++c)
        z += static_cast<double>(fc1[r * kHidden + c]) * static_cast<double>(x[c]);
      logit += Relu(z) * static_cast<double>(fc2[place * kRank + r]);
    }
    return logit;
  }
};

using Says = std::function<bool(int id, std::size_t place, int token)>;

// Expects every range's lists to hold the neurons that `says` selects, with their tokens.
void ExpectFound(CandidateFinder& finder, const NeuronRanges& ranges, const FfnStep& step,
                 const Says& says) {
  finder.Prepare(step);
  std::vector<int> first;  // for token 0
  int left_out = 0;
  for (int r = 0; r < ranges.NumRanges(0); ++r) {
    const NeuronRange range = ranges.Of(0, r);
    const NeuronList& found = finder.Find(step, range, 1);
    int k = 0;
    for (int i = 0; i < range.count; ++i) {
      unsigned mask = 0;
      for (int t = 0; t < step.input.tokens; ++t)
        mask |= says(range.id(i), static_cast<std::size_t>(range.begin + i), t) ? 1U << t : 0U;
      if (mask & 1U) first.push_back(range.id(i));
      if (mask == 0 && ++left_out) continue;
      ASSERT_LT(k, found.count);
      ASSERT_EQ(found.ids[static_cast<std::size_t>(k)], range.id(i));
      ASSERT_EQ(found.masks[static_cast<std::size_t>(k++)], mask) << range.id(i);
    }
    ASSERT_EQ(k, found.count);
    EXPECT_EQ(found.whole, !Predicts(step.policy.mode));
  }
  EXPECT_EQ(left_out > 0, Predicts(step.policy.mode));
  if (step.input.tokens > 1) return;
  const auto all = finder.FindAll(step);
  EXPECT_EQ(std::vector<int>(all.begin(), all.end()), first);
}

void ExpectFinds(const std::vector<std::vector<int>>* members) {
  SmallNetwork network({.members = members});
  const FfnContext context = network.context();
  std::vector<int> ids;
  for (int r = 0; r < context.ranges.NumRanges(0); ++r)
    for (int i = 0; i < context.ranges.Of(0, r).count; ++i)
      ids.push_back(context.ranges.Of(0, r).id(i));
  SomePredictors some(network, ids);
  CandidateFinder finder(context, &some.predictors, kSparseTokensMax);
  for (const int tokens : {1, 5, 16}) {
    const SmallInput input(tokens);
    for (const float shift : {0.0F, 6.0F}) {
      ExpectFound(finder, context.ranges, input.Step({.mode = FfnMode::kSign, .shift = shift}),
                  [&](int id, std::size_t place, int t) {
                    return some.SignSays(network, id, place, input.x(t), shift);
                  });
      for (const bool before_norm : {false, true}) {
        some.predictors.layers[0].low_rank->before_norm = before_norm;
        ExpectFound(finder, context.ranges, input.Step({.mode = FfnMode::kLowRank, .shift = shift}),
                    [&](int, std::size_t place, int t) {
                      const float* x = before_norm ? input.residual(t) : input.x(t);
                      return some.Logit(place, x) >= 5 + static_cast<double>(shift);
                    });
      }
    }
    for (const FfnMode mode : {FfnMode::kExact, FfnMode::kThreshold})
      ExpectFound(finder, context.ranges, input.Step({.mode = mode}),
                  [](int, std::size_t, int) { return true; });
  }
}

TEST(CandidateFinder, FindsWhatThePredictorsSay) { ExpectFinds(nullptr); }

TEST(CandidateFinder, FindsAmongMembers) {
  const auto members = SomeMembers(1);
  ExpectFinds(&members);
}

TEST(CandidateFinder, GuessesByThePolicyOrByAnyPredictor) {
  SmallNetwork network;
  SomePredictors some(network, {0, 1, 2});
  const CandidateFinder finder(network.context(), &some.predictors, 1);
  EXPECT_EQ(finder.ReadAheadPolicy(0, {.mode = FfnMode::kLowRank, .shift = 2})->mode,
            FfnMode::kLowRank);
  EXPECT_EQ(finder.ReadAheadPolicy(0, {.mode = FfnMode::kLowRank, .shift = 2})->shift, 2);
  EXPECT_EQ(finder.ReadAheadPolicy(0, {.mode = FfnMode::kThreshold, .shift = 2})->mode,
            FfnMode::kSign);
  EXPECT_EQ(finder.ReadAheadPolicy(0, {.mode = FfnMode::kThreshold, .shift = 2})->shift, 0);
  some.predictors.layers[0].sign.reset();
  EXPECT_EQ(finder.ReadAheadPolicy(0, {.mode = FfnMode::kExact})->mode, FfnMode::kLowRank);
  some.predictors.layers[0].low_rank.reset();
  EXPECT_FALSE(finder.ReadAheadPolicy(0, {.mode = FfnMode::kExact}).has_value());
  const CandidateFinder none(network.context(), nullptr, 1);
  EXPECT_FALSE(none.ReadAheadPolicy(0, {.mode = FfnMode::kExact}).has_value());
}

TEST(CandidateFinder, CountsThePredictorsBytes) {
  SmallNetwork network;
  const SomePredictors some(network, {0, 1, 2});
  const CandidateFinder finder(network.context(), &some.predictors, 1);
  EXPECT_EQ(finder.PredictorBytes(0, FfnMode::kSign), 3 * 64);  // one cache line each
  EXPECT_EQ(finder.PredictorBytes(0, FfnMode::kLowRank), (16 * kHidden + 16 * 8) * 4);  // panels
  EXPECT_EQ(finder.PredictorBytes(0, FfnMode::kExact), 0);
}

}  // namespace
}  // namespace thermocline::ffn
