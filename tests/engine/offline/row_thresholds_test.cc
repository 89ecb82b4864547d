#include "engine/offline/row_thresholds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/offline/row_curve.h"

namespace thermocline::offline {
namespace {

// Rows whose score is right except for noise, each with its own offset: active if score + noise >
// offset of the row.
struct Planted {
  explicit Planted(int tokens, std::uint32_t seed, float noise = 4)
      : active(tokens, kRows), masses(static_cast<std::size_t>(tokens * kRows)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int t = 0; t < tokens; ++t) {
      for (int i = 0; i < kRows; ++i) {
        const float score = 40 * normal(random);
        scores.push_back(static_cast<std::int32_t>(std::lround(score)));
        if (score + noise * normal(random) <= Offset(i)) continue;
        active.Set(t, i);
        masses[scores.size() - 1] = std::abs(normal(random)) * (i % 5 == 0 ? 9.0F : 1.0F);
      }
    }
  }
  // Offsets spread over 40 .. 100; rows 60 to 63 are rarely active.
  static float Offset(int row) {
    return row >= 60 ? 145.0F : 40 + static_cast<float>(row % 20) * 3;
  }
  RowSamples samples() const { return {.scores = scores, .active = &active, .masses = masses}; }

  static constexpr int kRows = 64;
  std::vector<std::int32_t> scores;
  BitMatrix active;
  std::vector<float> masses;
};

TEST(RowCurve, HullAndCounts) {
  // Scores 9 8 7 6 5 4; active at 9 (worth 1), 6 (worth 5), 4 (worth 1).
  const RowCurve curve({4, 9, 7, 5, 6, 8}, {{6, 5}, {9, 1}, {4, 1}});
  EXPECT_EQ(curve.never(), 10);
  EXPECT_EQ(curve.worth(), 7);
  EXPECT_EQ(curve.Predicted(6), 4);
  EXPECT_EQ(curve.Caught(6), 6);
  EXPECT_EQ(curve.CaughtTokens(5), 2);
  EXPECT_EQ(curve.Caught(100), 0);
  EXPECT_EQ(curve.ThresholdFor(1.5), 6);
  EXPECT_EQ(curve.ThresholdFor(7), 4);
  // (0,0), (1,1), (4,6), (6,7): the hull omits (1,1), whose slope is below the next one's.
  EXPECT_EQ(curve.Best(0.1), 10);
  EXPECT_EQ(curve.Best(1), 6);
  EXPECT_EQ(curve.Best(1.9), 6);
  EXPECT_EQ(curve.Best(2.1), 4);
  EXPECT_EQ(RowCurve({}, {}).Best(5), std::numeric_limits<std::int32_t>::max());
}

TEST(RowThresholds, FindPlantedOffsets) {
  const Planted train(3000, 1), held_out(1500, 2);
  base::WorkerPool pool(1);
  const auto fit = FitRowThresholds(train.samples(), held_out.samples(), {.target = 0.95}, pool);
  ASSERT_TRUE(fit.ok()) << fit.status().message();
  EXPECT_GE(fit->held_out.recall, 0.95);
  EXPECT_LT(fit->held_out.predicted_share, 1.15 * fit->held_out.active_share);
  EXPECT_GE(fit->common_held_out.recall, 0.95);
  EXPECT_GT(fit->common_held_out.predicted_share, 1.5 * fit->held_out.predicted_share);
  for (int i = 0; i < 60; ++i)
    EXPECT_NEAR(fit->thresholds[static_cast<std::size_t>(i)], Planted::Offset(i), 12) << i;
  for (std::size_t i = 60; i < 64; ++i) EXPECT_GT(fit->thresholds[i], 100) << i;
  const Planted fresh(1500, 3);
  EXPECT_GT(MeasureThresholds(fresh.samples(), fit->thresholds).recall, 0.94);
}

TEST(RowThresholds, FewTokensAreDrawnToTheLayer) {
  const Planted train(60, 1, 10), held_out(2000, 2, 10);
  base::WorkerPool pool(1);
  const auto fit = FitRowThresholds(train.samples(), held_out.samples(), {.target = 0.95}, pool);
  ASSERT_TRUE(fit.ok());
  EXPECT_GT(fit->shrinkage, 0);
  EXPECT_GE(fit->held_out.recall, 0.95);
  EXPECT_LT(fit->held_out.predicted_share, fit->common_held_out.predicted_share);
}

TEST(RowThresholds, MassCountsWhereItIsAsked) {
  const Planted train(3000, 1, 20), held_out(3000, 2, 20);
  base::WorkerPool pool(2);
  const auto by_mass = FitRowThresholds(train.samples(), held_out.samples(),
                                        {.target = 0.95, .by_mass = true}, pool);
  const auto by_count =
      FitRowThresholds(train.samples(), held_out.samples(), {.target = 0.95}, pool);
  ASSERT_TRUE(by_mass.ok() && by_count.ok());
  EXPECT_LE(by_mass->held_out.missed_mass, 0.05 + 1e-9);
  // Every fifth row weighs nine times as much, so that fewer neurons have the same mass.
  EXPECT_LT(by_mass->held_out.predicted_share, by_count->held_out.predicted_share);
  EXPECT_LT(by_mass->held_out.recall, 0.95);
}

TEST(RowThresholds, TheWholeRecallIsReachedToo) {
  const Planted train(500, 1), held_out(500, 2);
  base::WorkerPool pool(1);
  const auto fit = FitRowThresholds(train.samples(), held_out.samples(), {.target = 1}, pool);
  ASSERT_TRUE(fit.ok());
  EXPECT_DOUBLE_EQ(fit->held_out.recall, 1);
  EXPECT_DOUBLE_EQ(fit->held_out.missed_mass, 0);
}

TEST(RowThresholds, WhatCannotBeFittedIsRefused) {
  const Planted train(50, 1), held_out(50, 2);
  base::WorkerPool pool(1);
  const auto code = [&](const RowSamples& a, const RowSamples& b, RowThresholdOptions options) {
    return FitRowThresholds(a, b, options, pool).status().code();
  };
  RowSamples massless = train.samples(), silent = train.samples(), odd = train.samples();
  massless.masses = {};
  const BitMatrix none(50, Planted::kRows), narrow(50, 3);
  silent.active = &none;
  odd.active = &narrow;
  const auto invalid = StatusCode::kInvalidArgument;
  EXPECT_EQ(code(massless, held_out.samples(), {.target = 0.9, .by_mass = true}), invalid);
  EXPECT_EQ(code(silent, held_out.samples(), {}), invalid);
  EXPECT_EQ(code(train.samples(), silent, {}), invalid);
  EXPECT_EQ(code(odd, held_out.samples(), {}), invalid);
  EXPECT_EQ(code(train.samples(), held_out.samples(), {.target = 0}), invalid);
  EXPECT_EQ(code(train.samples(), held_out.samples(), {.target = NAN}), invalid);
}

}  // namespace
}  // namespace thermocline::offline
