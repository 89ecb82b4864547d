// Replays: Belady's hits are the optimum of an exhaustive search; each policy on traces whose hits
// are counted by hand.
#include "engine/offline/replay.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "engine/offline/position_set.h"

namespace thermocline::offline {
namespace {

using Sets = std::vector<std::vector<std::uint32_t>>;  // [tokens * layers]

store::Trace MakeTrace(int layers, int neurons, const Sets& sets) {
  store::Trace trace;
  trace.num_hidden_layers = layers;
  trace.intermediate_size = neurons;
  trace.begin.push_back(0);
  for (const auto& set : sets) {
    trace.neurons.insert(trace.neurons.end(), set.begin(), set.end());
    trace.begin.push_back(trace.neurons.size());
  }
  trace.tokens = static_cast<std::int64_t>(sets.size()) / layers;
  return trace;
}

// One layer, one neuron per token.
store::Trace Sequence(const std::vector<std::uint32_t>& neurons) {
  Sets sets;
  for (const std::uint32_t neuron : neurons) sets.push_back({neuron});
  return MakeTrace(1, 8, sets);
}

std::int64_t Hits(const store::Trace& trace, CachePolicy policy, std::size_t capacity) {
  const ReplayResult result = Replay(trace, {.cold_share = 0}).Run(policy, capacity);
  EXPECT_EQ(result.cold.needed, 0);
  EXPECT_EQ(result.warm.needed, static_cast<std::int64_t>(trace.neurons.size()));
  return result.warm.hits;
}

// The most hits of any choice of kept neurons.
class BestOfAll {
 public:
  BestOfAll(std::vector<std::uint32_t> uses, std::size_t capacity)
      : uses_(std::move(uses)), capacity_(capacity) {}
  std::int64_t Hits() { return From(0, {}); }

 private:
  using Cache = std::set<std::uint32_t>;
  std::int64_t From(std::size_t at, const Cache& cache) {
    if (at == uses_.size()) return 0;
    const auto known = known_.find({at, cache});
    if (known != known_.end()) return known->second;
    const bool hit = cache.contains(uses_[at]);
    std::int64_t best = From(at + 1, cache);  // without caching this one
    Cache with = cache;
    with.insert(uses_[at]);
    if (with.size() <= capacity_) best = std::max(best, From(at + 1, with));
    for (const std::uint32_t leaves : cache) {
      if (hit) break;
      Cache without = with;
      without.erase(leaves);
      best = std::max(best, From(at + 1, without));
    }
    return known_[{at, cache}] = best + (hit ? 1 : 0);
  }
  const std::vector<std::uint32_t> uses_;
  const std::size_t capacity_;
  std::map<std::pair<std::size_t, Cache>, std::int64_t> known_;
};

TEST(Replay, BeladyIsTheOptimum) {
  std::mt19937 random(2);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::uint32_t> uses(14);
    for (auto& use : uses) use = static_cast<std::uint32_t>(random() % 6);
    for (const std::size_t capacity : {1, 2, 3})
      ASSERT_EQ(Hits(Sequence(uses), CachePolicy::kBelady, capacity),
                BestOfAll(uses, capacity).Hits())
          << "round " << round << " capacity " << capacity;
  }
}

TEST(Replay, NonePassesBelady) {
  std::mt19937 random(4);
  Sets sets(120 * 3);
  for (auto& set : sets) {
    for (std::uint32_t neuron = 0; neuron < 40; ++neuron) {
      if (random() % (neuron + 2) < 2) set.push_back(neuron);
    }
  }
  const store::Trace trace = MakeTrace(3, 40, sets);
  for (const std::size_t capacity : {5, 20, 50, 100}) {
    const std::int64_t best = Hits(trace, CachePolicy::kBelady, capacity);
    for (const CachePolicy policy : kCachePolicies)
      EXPECT_LE(Hits(trace, policy, capacity), best) << CachePolicyName(policy) << capacity;
  }
  // With room for all, each neuron misses once.
  std::set<std::uint32_t> used[3];
  for (std::size_t i = 0; i < sets.size(); ++i) used[i % 3].insert(sets[i].begin(), sets[i].end());
  const auto all = static_cast<std::int64_t>(trace.neurons.size() - used[0].size() -
                                             used[1].size() - used[2].size());
  for (const CachePolicy policy : kCachePolicies)
    EXPECT_EQ(Hits(trace, policy, 120), all) << CachePolicyName(policy);
}

TEST(Replay, ByHand) {
  // A loop one larger than the cache, on which LRU fails.
  const store::Trace loop = Sequence({0, 1, 2, 0, 1, 2, 0, 1, 2});
  EXPECT_EQ(Hits(loop, CachePolicy::kLru, 2), 0);
  EXPECT_EQ(Hits(loop, CachePolicy::kBelady, 2), 4);  // 0 and 1 stay
  EXPECT_EQ(Hits(loop, CachePolicy::kWindow, 2), 0);
  EXPECT_EQ(Hits(loop, CachePolicy::kWindow, 3), 6);
  // 0 and 1 are frequent; 2 to 5 occur once each, two at a time.
  const store::Trace scan = Sequence({0, 1, 0, 1, 2, 3, 0, 1, 4, 5, 0, 1});
  EXPECT_EQ(Hits(scan, CachePolicy::kLru, 2), 2);
  EXPECT_EQ(Hits(scan, CachePolicy::kLru, 3), 2);
  EXPECT_EQ(Hits(scan, CachePolicy::kLfu, 3), 6);  // 2 to 5 compete for the third place
  EXPECT_EQ(Hits(scan, CachePolicy::kSlru, 3), 6);
  EXPECT_EQ(Hits(scan, CachePolicy::kHeat, 2), 6);  // 2 to 5 are not cached
  EXPECT_EQ(Hits(scan, CachePolicy::kBelady, 2), 6);
}

TEST(Replay, TheFirstTokensAreCountedApart) {
  const store::Trace trace = Sequence({0, 0, 0, 0, 1, 1, 1, 1, 2, 2});
  const ReplayResult result = Replay(trace, {.cold_share = 0.5}).Run(CachePolicy::kLru, 4);
  EXPECT_EQ(result.cold.needed, 5);
  EXPECT_EQ(result.cold.hits, 3);
  EXPECT_EQ(result.warm.needed, 5);
  EXPECT_EQ(result.warm.hits, 4);
}

// Neurons of the current token are not evicted, because the store needs them.
TEST(Replay, OursKeepsWhatTheTokenUses) {
  const store::Trace trace = MakeTrace(2, 4, {{0, 1}, {0, 1}, {0, 1}, {0, 1}, {2, 3}, {2, 3}});
  // Two of four fit, for the second token as for the first; none of the third is as hot.
  EXPECT_EQ(Hits(trace, CachePolicy::kHeat, 2), 2);
}

TEST(PositionSet, FindsTheLargest) {
  std::mt19937 random(8);
  for (const std::size_t bound : {1UL, 64UL, 65UL, 5000UL, 300000UL}) {
    PositionSet set(bound);
    std::set<std::size_t> oracle;
    for (int i = 0; i < 4000; ++i) {
      const std::size_t value = random() % bound;
      if (oracle.contains(value) ? random() % 2 != 0 : random() % 3 == 0) {
        set.Erase(value);
        oracle.erase(value);
      } else {
        set.Insert(value);
        oracle.insert(value);
      }
      ASSERT_EQ(set.empty(), oracle.empty());
      if (!oracle.empty()) {
        ASSERT_EQ(set.Largest(), *oracle.rbegin());
      }
    }
  }
}

}  // namespace
}  // namespace thermocline::offline
