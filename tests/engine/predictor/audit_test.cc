// Counts of a prediction's hits and misses; the positive class is ACTIVE.
#include "engine/predictor/audit.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace thermocline::predictor {
namespace {

AuditCounts Count(const std::vector<int>& predicted, const std::vector<int>& active,
                  const std::vector<float>& h, const std::vector<float>& norms) {
  return CountPrediction({.predicted = predicted,
                          .active = active,
                          .h = h.data(),
                          .down_norms = norms.data(),
                          .neurons = static_cast<int>(norms.size())});
}

TEST(Audit, CountsByHand) {
  // Active: 1 (h -2, norm 3), 2 (h 1, norm 5), 5 (h 4, norm 0.5). Predicted: 0, 2, 3, 5.
  const AuditCounts c = Count({0, 2, 3, 5}, {1, 2, 5}, {-2, 1, 4}, {1, 3, 5, 1, 1, 0.5F, 1, 1});
  EXPECT_EQ(c.tokens, 1);
  EXPECT_EQ(c.tp, 2);
  EXPECT_EQ(c.fp, 2);
  EXPECT_EQ(c.fn, 1);
  EXPECT_EQ(c.tn, 3);
  EXPECT_DOUBLE_EQ(c.missed_mass, 6);
  EXPECT_DOUBLE_EQ(c.total_mass, 13);
  EXPECT_DOUBLE_EQ(c.recall(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(c.precision(), 0.5);
  EXPECT_DOUBLE_EQ(c.active_share(), 3.0 / 8);
  EXPECT_DOUBLE_EQ(c.predicted_share(), 0.5);
  EXPECT_DOUBLE_EQ(c.missed_share(), 6.0 / 13);
}

TEST(Audit, ExtremesHaveNoDivisionByZero) {
  const AuditCounts none = Count({}, {}, {}, {1, 1});
  EXPECT_EQ(none.tn, 2);
  EXPECT_EQ(none.recall(), 1);
  EXPECT_EQ(none.precision(), 1);
  EXPECT_EQ(none.missed_share(), 0);
  const AuditCounts missed = Count({}, {0, 1}, {1, 1}, {1, 1});
  EXPECT_EQ(missed.fn, 2);
  EXPECT_EQ(missed.recall(), 0);
  EXPECT_EQ(missed.missed_share(), 1);
  const AuditCounts all = Count({0, 1}, {0, 1}, {1, 1}, {1, 1});
  EXPECT_EQ(all.tp, 2);
  EXPECT_EQ(all.missed_mass, 0);
  EXPECT_EQ(AuditCounts().active_share(), 0);
}

TEST(Audit, RandomPredictionsAsCountedOneByOne) {
  std::mt19937 random(1);
  AuditCounts sum;
  std::int64_t tp = 0, fp = 0, fn = 0, tn = 0;
  double missed = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<int> predicted, active;
    std::vector<float> h, norms;
    for (int i = 0; i < 67; ++i) {
      const bool p = random() % 5 < 2, a = random() % 3 == 0;
      norms.push_back(static_cast<float>(random() % 100) / 8);
      const float value = static_cast<float>(static_cast<int>(random() % 99) - 49);
      if (p) predicted.push_back(i);
      if (a) {
        active.push_back(i);
        h.push_back(value);
        missed += p ? 0 : std::abs(static_cast<double>(value)) * static_cast<double>(norms.back());
      }
      ++(p ? (a ? tp : fp) : (a ? fn : tn));
    }
    sum += Count(predicted, active, h, norms);
  }
  EXPECT_EQ(sum.tokens, 200);
  EXPECT_EQ(sum.tp, tp);
  EXPECT_EQ(sum.fp, fp);
  EXPECT_EQ(sum.fn, fn);
  EXPECT_EQ(sum.tn, tn);
  EXPECT_EQ(sum.neurons(), 200 * 67);
  EXPECT_NEAR(sum.missed_mass, missed, 1e-9 * missed);
}

}  // namespace
}  // namespace thermocline::predictor
