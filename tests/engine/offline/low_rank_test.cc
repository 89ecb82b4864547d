#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/offline/low_rank_trainer.h"
#include "engine/offline/threshold_scan.h"

namespace thermocline::offline {
namespace {

// P(N(0,1) > t) = 0.1.
constexpr float kTenth = 1.2816F;

// Tokens of a teacher of known rank: neuron i is active if v_i . (U x) > t.
struct Planted {
  Planted(int d, int f, int teacher_rank, float at_threshold)
      : hidden_size(d), neurons(f), rank(teacher_rank), threshold(at_threshold) {
    std::normal_distribution<float> normal;
    for (int i = 0; i < rank * d; ++i)
      u.push_back(normal(random) / std::sqrt(static_cast<float>(d)));
    for (int i = 0; i < f * rank; ++i)
      v.push_back(normal(random) / std::sqrt(static_cast<float>(rank)));
  }

  struct Tokens {
    std::vector<float> inputs;
    BitMatrix labels;
    TrainingData data(int d) const {
      return {.inputs = inputs, .labels = &labels, .hidden_size = d};
    }
  };
  Tokens Draw(int tokens) {
    std::normal_distribution<float> normal;
    Tokens out{.inputs = {}, .labels = BitMatrix(tokens, neurons)};
    std::vector<float> z(static_cast<std::size_t>(rank));
    for (int t = 0; t < tokens; ++t) {
      for (int i = 0; i < hidden_size; ++i)
        out.inputs.push_back(10 * normal(random) * (i % 7 == 0 ? 20.0F : 1.0F));
      const float* x =
          out.inputs.data() + out.inputs.size() - static_cast<std::size_t>(hidden_size);
      for (int r = 0; r < rank; ++r) {
        float sum = 0;
        for (int i = 0; i < hidden_size; ++i) sum += U(r, i) * x[i] / (i % 7 == 0 ? 200.0F : 10.0F);
        z[static_cast<std::size_t>(r)] = sum;
      }
      for (int i = 0; i < neurons; ++i) {
        float sum = 0;
        for (int r = 0; r < rank; ++r) sum += V(i, r) * z[static_cast<std::size_t>(r)];
        if (sum > threshold) out.labels.Set(t, i);
      }
    }
    return out;
  }
  float U(int r, int i) const { return u[static_cast<std::size_t>(r * hidden_size + i)]; }
  float V(int i, int r) const { return v[static_cast<std::size_t>(i * rank + r)]; }

  int hidden_size, neurons, rank;
  float threshold;
  std::mt19937 random{7};
  std::vector<float> u, v;
};

TEST(ThresholdScan, ChoosesTheHighestThresholdThatKeepsTheRecall) {
  ThresholdScan scan;
  for (int i = 0; i < 100; ++i) scan.Add(static_cast<float>(i) / 10);  // 0.0 to 9.9
  for (int i = 60; i < 80; ++i) scan.AddPositive(static_cast<float>(i) / 10);
  const auto choice = scan.Choose(0.9);  // 18 of 20: from 6.2 on
  EXPECT_NEAR(choice.threshold, 6.2, 0.002);
  EXPECT_DOUBLE_EQ(choice.recall, 0.9);
  EXPECT_DOUBLE_EQ(choice.predicted_share, 0.38);
  EXPECT_DOUBLE_EQ(choice.active_share, 0.2);
  EXPECT_DOUBLE_EQ(scan.At(choice.threshold).recall, 0.9);
  scan.Add(-1e9F);
  scan.AddPositive(-1e9F);
  EXPECT_DOUBLE_EQ(scan.Choose(1).recall, 1);
  EXPECT_LT(scan.Choose(1).threshold, -1e9F);
}

TEST(TrainingOps, EveryTableMultiplies) {
  const int m = 37, n = 53, k = 29;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n));
  for (float& x : a) x = normal(random);
  for (float& x : b) x = normal(random);
  for (int table = 0; table < AllTrainingOps().count; ++table) {
    for (const bool at : {false, true}) {
      for (const bool bt : {false, true}) {
        std::vector<float> c(static_cast<std::size_t>(m * n));
        base::WorkerPool pool(2);
        MultiplyTiled(*AllTrainingOps().tables[table], pool,
                      {.a = a.data(),
                       .b = b.data(),
                       .c = c.data(),
                       .m = m,
                       .n = n,
                       .k = k,
                       .a_transposed = at,
                       .b_transposed = bt});
        for (int row = 0; row < m; ++row) {
          for (int col = 0; col < n; ++col) {
            double sum = 0;
            for (int i = 0; i < k; ++i) {
              sum +=
                  static_cast<double>(a[static_cast<std::size_t>(at ? i * m + row : row * k + i)]) *
                  b[static_cast<std::size_t>(bt ? col * k + i : i * n + col)];
            }
            ASSERT_NEAR(c[static_cast<std::size_t>(row * n + col)], sum, 1e-4);
          }
        }
      }
    }
  }
}

TEST(TrainingOps, GradientOfTheLogisticLoss) {
  const std::uint64_t labels[2] = {0b101, 0b10};
  for (int table = 0; table < AllTrainingOps().count; ++table) {
    std::vector<float> z(70, 0.5F);
    AllTrainingOps().tables[table]->logistic_gradient(
        {.z = z.data(), .labels = labels, .n = 70, .positive_weight = 3, .scale = 0.25F});
    const float p = 1 / (1 + std::exp(-0.5F));
    for (const std::size_t i : {0U, 2U, 65U}) EXPECT_NEAR(z[i], 3 * (p - 1) / 4, 1e-6) << i;
    for (const std::size_t i : {1U, 63U, 64U, 69U}) EXPECT_NEAR(z[i], p / 4, 1e-6) << i;
  }
}

TEST(LowRank, LearnsAPlantedTeacher) {
  Planted teacher(64, 300, 4, kTenth);
  const auto train = teacher.Draw(6000), held_out = teacher.Draw(1000), fresh = teacher.Draw(1000);
  base::WorkerPool pool(1);
  TrainingOptions options;
  options.rank = 16;
  double done = 0;
  options.on_progress = [&](const TrainingProgress& p) {
    EXPECT_GE(p.share_done, done);
    done = p.share_done;
  };
  const auto p = TrainLowRank(train.data(64), held_out.data(64), options, pool);
  ASSERT_TRUE(p.ok()) << p.status().message();
  EXPECT_EQ(p->rank, 16);
  EXPECT_GE(p->recall, 0.95);
  EXPECT_LT(p->predicted_share, 1.6 * p->active_share);
  EXPECT_EQ(done, 1);
  const PredictorQuality quality = MeasureLowRank(*p, fresh.data(64), pool);
  EXPECT_GT(quality.recall, 0.94);
  EXPECT_LT(quality.predicted_share, 1.7 * quality.active_share);
}

TEST(LowRank, TheSameBitsAtAnyNumberOfThreads) {
  Planted teacher(32, 300, 4, kTenth);
  const auto train = teacher.Draw(700), held_out = teacher.Draw(300);
  TrainingOptions options;
  options.rank = 16;
  options.epochs_max = 3;
  std::vector<predictor::LowRankPredictor> made;
  for (const int threads : {1, 3}) {
    base::WorkerPool pool(threads);
    made.push_back(*TrainLowRank(train.data(32), held_out.data(32), options, pool));
  }
  EXPECT_EQ(made[0].fc1, made[1].fc1);
  EXPECT_EQ(made[0].fc2, made[1].fc2);
  EXPECT_EQ(made[0].threshold, made[1].threshold);
}

TEST(LowRank, AnEasyLayerGetsFewerRanksThanAHardOne) {
  Planted easy(128, 512, 2, kTenth), hard(128, 512, 32, kTenth);
  TrainingOptions options;
  options.share_limit = 2;
  base::WorkerPool pool(1);
  const auto easy_train = easy.Draw(4000), easy_held = easy.Draw(500);
  const auto hard_train = hard.Draw(4000), hard_held = hard.Draw(500);
  const auto small = TrainLowRank(easy_train.data(128), easy_held.data(128), options, pool);
  const auto large = TrainLowRank(hard_train.data(128), hard_held.data(128), options, pool);
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_LE(small->predicted_share, 2 * small->active_share);
  EXPECT_LT(small->rank, large->rank);
}

TEST(LowRank, WhatCannotBeTrainedIsRefused) {
  Planted teacher(32, 64, 2, kTenth);
  auto train = teacher.Draw(100), held_out = teacher.Draw(50);
  base::WorkerPool pool(1);
  const auto code = [&](const TrainingData& a, const TrainingData& b) {
    return TrainLowRank(a, b, {}, pool).status().code();
  };
  const BitMatrix nothing(100, 64), none(0, 64);
  EXPECT_EQ(code({train.inputs, &nothing, 32}, held_out.data(32)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(train.data(32), {{}, &none, 32}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(train.data(16), held_out.data(16)), StatusCode::kInvalidArgument);
  train.inputs[5] = INFINITY;
  EXPECT_EQ(code(train.data(32), held_out.data(32)), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace thermocline::offline
