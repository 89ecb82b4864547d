// The order of eviction, compared with sums over all uses.
#include "engine/store/heat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace thermocline::store {
namespace {

// Records every use, and computes the heat by its definition.
class Oracle {
 public:
  explicit Oracle(double half_life) : half_life_(half_life) {}
  void Touch(std::uint32_t entry, std::int64_t now) { uses_[entry].insert(now); }
  double Heat(std::uint32_t entry, std::int64_t now) const {
    const auto found = uses_.find(entry);
    double sum = 0;
    if (found == uses_.end()) return 0;
    for (const std::int64_t use : found->second)
      sum += std::exp2(static_cast<double>(use - now) / half_life_);
    return sum;
  }
  std::int64_t LastUse(std::uint32_t entry) const {
    const auto found = uses_.find(entry);
    return found == uses_.end() ? -1 : *found->second.rbegin();
  }

 private:
  double half_life_;
  std::map<std::uint32_t, std::set<std::int64_t>> uses_;
};

// The minimum heat of cached entries that were not used at `since` or later; infinity if there is
// none.
double Coldest(const Oracle& oracle, const std::set<std::uint32_t>& cached, std::int64_t now,
               std::int64_t since) {
  double least = std::numeric_limits<double>::infinity();
  for (const std::uint32_t entry : cached) {
    if (oracle.LastUse(entry) < since) least = std::min(least, oracle.Heat(entry, now));
  }
  return least;
}

struct Setting {
  double half_life;
  int tokens, guard;  // tokens: of the window
};

class HeatAtRandom : public testing::TestWithParam<Setting> {};

// Random uses, skewed as those of neurons: the evicted entry is the coldest outside of the window,
// to the precision of the sums.
TEST_P(HeatAtRandom, EvictsTheColdest) {
  const Setting setting = GetParam();
  constexpr std::uint32_t kEntries = 60;
  constexpr std::size_t kCached = 20;
  HeatOrder order({.entries = kEntries, .cached_max = kCached, .half_life = setting.half_life});
  Oracle oracle(setting.half_life);
  std::set<std::uint32_t> cached;
  std::mt19937 random(7);
  std::int64_t now = 0;
  int refused = 0, evictions = 0;
  for (int token = 0; token < setting.tokens; ++token) {
    now += 1 + static_cast<std::int64_t>(random() % 3);
    const std::int64_t since = now - setting.guard + 1;
    for (int use = 0; use < 9; ++use) {
      const auto entry = static_cast<std::uint32_t>(random() % (1 + random() % kEntries));
      order.Touch(entry, now);
      oracle.Touch(entry, now);
      ASSERT_EQ(order.last_use(entry), now);
      if (cached.contains(entry)) continue;
      if (cached.size() == kCached) {
        const double coldest = Coldest(oracle, cached, now, since);
        const std::uint32_t evicted = order.Evict(since);
        if (std::isinf(coldest)) {
          ASSERT_EQ(evicted, HeatOrder::kNone);
          ++refused;
          continue;
        }
        ASSERT_TRUE(cached.erase(evicted) == 1) << evicted;
        ASSERT_LT(oracle.LastUse(evicted), since);
        ASSERT_LE(oracle.Heat(evicted, now), coldest * 1.001) << "token " << token;
        ++evictions;
      }
      order.Insert(entry);
      cached.insert(entry);
      ASSERT_EQ(order.cached(), cached.size());
    }
  }
  EXPECT_GT(evictions, setting.tokens / 4);
  if (setting.guard > 3) {
    EXPECT_GT(refused, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(HalfLives, HeatAtRandom,
                         testing::Values(Setting{1, 2000, 1}, Setting{8, 2000, 1},
                                         Setting{32, 1000, 2}, Setting{500, 1000, 1},
                                         Setting{32, 1000, 9}));

// After 256 half-lives all numbers are rescaled: the order stays, and so do differences of one
// percent.
TEST(Heat, StaysFineAfterManyTokens) {
  HeatOrder order({.entries = 3, .cached_max = 3, .half_life = 4});
  for (std::uint32_t entry = 0; entry < 3; ++entry) order.Insert(entry);
  std::int64_t now = 2'000'000'000;  // years of tokens
  for (int i = 0; i < 40; ++i, now += 4) {
    order.Touch(0, now);
    order.Touch(1, now + 1);  // 19 % hotter
    order.Touch(2, now + 2);
  }
  EXPECT_NEAR(order.heat(1) - order.heat(0), 0.25, 1e-3);
  EXPECT_EQ(order.Evict(now), 0U);
  EXPECT_EQ(order.Evict(now), 1U);
  EXPECT_EQ(order.Evict(now), 2U);
  EXPECT_EQ(order.Evict(now), HeatOrder::kNone);
}

TEST(Heat, MoreThanOnceATokenCountsOnce) {
  HeatOrder order({.entries = 2, .cached_max = 2, .half_life = 8});
  order.Touch(0, 5);
  for (int i = 0; i < 9; ++i) order.Touch(1, 5);
  EXPECT_EQ(order.heat(0), order.heat(1));
}

// A profile's frequency counts as much as tokens that used the entry so often.
TEST(Heat, WarmIsAsUsedWithThatFrequency) {
  constexpr double kHalfLife = 64;
  HeatOrder warm({.entries = 2, .cached_max = 2, .half_life = kHalfLife});
  HeatOrder used({.entries = 2, .cached_max = 2, .half_life = kHalfLife});
  warm.Warm(0, 1);
  warm.Warm(1, 0.25);
  for (std::int64_t now = 0; now < 2000; ++now) {
    used.Touch(0, now);
    if (now % 4 == 0) used.Touch(1, now);
  }
  EXPECT_NEAR(warm.heat(0) - warm.heat(1), 2, 1e-5);
  EXPECT_NEAR(used.heat(0) - used.heat(1), 2, 0.05);
}

// An entry in use counts with its current use, before its Touch.
TEST(Heat, OnlyTheColderLeaveForAnEntry) {
  HeatOrder order({.entries = 4, .cached_max = 2, .half_life = 8});
  for (std::int64_t now = 0; now <= 10; ++now) {
    order.Touch(0, now);
    if (now % 2 == 0) order.Touch(1, now);
  }
  order.Insert(0);
  order.Insert(1);
  EXPECT_EQ(order.EvictFor(3, 10), HeatOrder::kNone);  // both are in use
  EXPECT_EQ(order.EvictFor(3, 11), HeatOrder::kNone);  // both are hotter
  EXPECT_EQ(order.cached(), 2U);
  for (const std::int64_t now : {11, 12, 13, 14}) order.Touch(3, now);
  EXPECT_EQ(order.EvictFor(3, 15), 1U);
  EXPECT_EQ(order.EvictFor(3, 15), HeatOrder::kNone);
  EXPECT_EQ(order.Evict(15), 0U);
}

}  // namespace
}  // namespace thermocline::store
