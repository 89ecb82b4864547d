// The order of neurons: planted groups become contiguous, counts are right, no neuron is lost.
#include "engine/offline/neuron_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace thermocline::offline {
namespace {

// Neurons fire in groups of eight that are scattered over the layer: n belongs to group n % groups.
ActiveColumns Planted(int neurons, int tokens, double noise) {
  ActiveColumns active(neurons, tokens);
  const int groups = neurons / 8;
  std::mt19937 random(11);
  std::uniform_real_distribution<double> chance(0, 1);
  for (int t = 0; t < tokens; ++t) {
    const int group = static_cast<int>(random() % static_cast<unsigned>(groups));
    for (int n = 0; n < neurons; ++n) {
      if ((n % groups == group) != (chance(random) < noise)) active.Set(n, t);
    }
  }
  return active;
}

bool IsPermutation(std::vector<std::uint32_t> order, int neurons) {
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != i) return false;
  }
  return order.size() == static_cast<std::size_t>(neurons);
}

TEST(NeuronOrder, GroupsThatFireTogetherBecomeNeighbours) {
  const ActiveColumns active = Planted(400, 1000, 0.01);
  base::WorkerPool pool(2);
  const NeuronOrder order = OrderByCoactivation(active.First(800), 1, pool);
  ASSERT_TRUE(IsPermutation(order.neurons, 400));
  EXPECT_EQ(order.hot, 0);
  int together = 0;
  for (std::size_t k = 1; k < 400; ++k)
    together += order.neurons[k] % 50 == order.neurons[k - 1] % 50 ? 1 : 0;
  EXPECT_GE(together, 350 - 4);  // seven links in each of fifty groups
  const double linked = CountRuns(active, order.neurons, 800, 1000).mean();
  const double by_count =
      CountRuns(active, OrderByFrequency(active.Counts(), 1000, 1).neurons, 800, 1000).mean();
  EXPECT_GT(linked, 2 * by_count);
}

TEST(NeuronOrder, TheSameAtAnyNumberOfThreads) {
  const ActiveColumns active = Planted(320, 300, 0.05);
  base::WorkerPool one(1), three(3);
  EXPECT_EQ(OrderByCoactivation(active, 0.2, one).neurons,
            OrderByCoactivation(active, 0.2, three).neurons);
}

TEST(NeuronOrder, HotOnesFirstNeverActiveOnesLast) {
  ActiveColumns active(10, 100);
  for (int t = 0; t < 100; ++t) {
    active.Set(7, t);
    if (t < 60) active.Set(3, t);
    if (t < 10) active.Set(1, t), active.Set(8, t);
    if (t >= 90) active.Set(0, t), active.Set(5, t);
  }
  base::WorkerPool pool(1);
  const NeuronOrder order = OrderByCoactivation(active, 0.5, pool);
  ASSERT_TRUE(IsPermutation(order.neurons, 10));
  EXPECT_EQ(order.hot, 2);
  EXPECT_EQ(std::vector(order.neurons.begin(), order.neurons.begin() + 6),
            (std::vector<std::uint32_t>{7, 3, 0, 5, 1, 8}));
  EXPECT_EQ(OrderByFrequency(active.Counts(), 100, 0.5).neurons,
            (std::vector<std::uint32_t>{7, 3, 0, 1, 5, 8, 2, 4, 6, 9}));
  const std::vector<std::uint32_t> position = PositionsOf(order);
  for (std::uint32_t k = 0; k < 10; ++k) EXPECT_EQ(position[order.neurons[k]], k);
}

TEST(NeuronOrder, RunsAreCounted) {
  ActiveColumns active(6, 70);
  for (const int neuron : {0, 1, 3, 4, 5}) active.Set(neuron, 66);
  active.Set(2, 69);
  const std::vector<std::uint32_t> order = {0, 1, 2, 3, 4, 5};
  const RunCount runs = CountRuns(active, order, 64, 70);
  EXPECT_EQ(runs.needed, 6);
  EXPECT_EQ(runs.runs, 3);
  EXPECT_EQ(CountRuns(active, order, 0, 64).needed, 0);
  EXPECT_EQ(active.First(69).Counts(), (std::vector<std::uint32_t>{1, 1, 0, 1, 1, 1}));
}

}  // namespace
}  // namespace thermocline::offline
