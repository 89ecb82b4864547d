// Live neurons and their h are those of the scalar definition, for the tokens that use them.
#include "engine/ffn/range_computer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/ffn/small_network.h"

namespace thermocline::ffn {
namespace {

// Some of the range's neurons, each for some tokens.
NeuronList SomeCandidates(const NeuronRange& range, int tokens) {
  NeuronList out;
  std::mt19937 random(5);
  for (int i = 0; i < range.count; ++i) {
    if (random() % 3 == 0) continue;
    out.Add(range.id(i), static_cast<std::uint16_t>(1 + random() % ((1U << tokens) - 1)));
  }
  return out;
}

NeuronList All(const NeuronRange& range, int tokens) {
  NeuronList out;
  for (int i = 0; i < range.count; ++i)
    out.Add(range.id(i), static_cast<std::uint16_t>((1U << tokens) - 1));
  out.whole = true;
  return out;
}

void ExpectComputes(SmallNetwork& network, RangeComputer& computer, const NeuronRange& range,
                    const NeuronList& candidates, const FfnPolicy& policy, int tokens) {
  const SmallNetwork::Layer& layer = network.layers[0];
  const bool gated = network.config.architecture->gated;
  const SmallNetwork::Matrix& deciding = gated ? layer.gate : layer.up;
  const SmallInput input(tokens);
  const FfnStep step = input.Step(policy);
  const GatedNeurons& live = computer.Decide(step, range, candidates, 1);
  const float* h = computer.Finish(step, range, live, 1);
  const double least = policy.mode == FfnMode::kThreshold ? static_cast<double>(policy.shift) : 0;
  std::size_t k = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(candidates.count); ++i) {
    const int id = candidates.ids[i];
    unsigned mask = 0;
    for (int t = 0; t < tokens; ++t) {
      const double act = Relu(deciding.Times(id, input.x(t)));
      if (act > 0 && act >= least) mask |= 1U << t;
    }
    mask &= candidates.masks[i];
    if (mask == 0) continue;
    ASSERT_LT(k, static_cast<std::size_t>(live.list.count));
    ASSERT_EQ(live.list.ids[k], id);
    ASSERT_EQ(live.list.masks[k], mask) << id;
    for (int t = 0; t < tokens; ++t) {
      const double gate = deciding.Times(id, input.x(t));
      const auto at = static_cast<std::size_t>(t * kRange) + k;
      ASSERT_NEAR(static_cast<double>(live.gates[at]), gate, 1e-4) << id;
      const double up = gated ? layer.up.Times(id, input.x(t)) : 1;
      const double want = (mask >> t & 1U) != 0 ? Relu(gate) * up : 0;
      ASSERT_NEAR(static_cast<double>(h[at]), want, 1e-3) << id << " token " << t;
      if (want == 0) {
        ASSERT_EQ(h[at], 0);
      }
    }
    ++k;
  }
  EXPECT_EQ(k, static_cast<std::size_t>(live.list.count));
  EXPECT_GT(k, 0U);
  EXPECT_LT(k, static_cast<std::size_t>(candidates.count) + (tokens > 4 ? 1 : 0));
}

TEST(RangeComputer, ComputesTheLiveNeurons) {
  for (const bool gated : {true, false}) {
    for (const bool bias : {false, true}) {
      SmallNetwork network({.gated = gated, .bias = bias});
      RangeComputer computer(network.context(), kSparseTokensMax);
      for (const int tokens : {1, 3, 16}) {
        for (int r = 0; r < 3; ++r) {
          const NeuronRange range = network.context().ranges.Of(0, r);
          for (const FfnPolicy& policy :
               {FfnPolicy{.mode = FfnMode::kExact}, FfnPolicy{.mode = FfnMode::kSign, .shift = 9},
                FfnPolicy{.mode = FfnMode::kThreshold, .shift = 8}}) {
            ExpectComputes(network, computer, range, SomeCandidates(range, tokens), policy, tokens);
            ExpectComputes(network, computer, range, All(range, tokens), policy, tokens);
          }
        }
      }
    }
  }
}

TEST(RangeComputer, ReadsWholeRangesFromPanels) {
  SmallNetwork rows, panels({.layout = model::Layout::kPanels});
  panels.weights.layers[0].up = rows.weights.layers[0].up;  // live rows are selected
  RangeComputer computer(panels.context(), 4);
  const NeuronRange range = panels.context().ranges.Of(0, 2);
  ExpectComputes(panels, computer, range, All(range, 2), {.mode = FfnMode::kExact}, 2);
}

TEST(RangeComputer, ComputesMembers) {
  const auto members = SomeMembers(1);
  SmallNetwork network({.members = &members});
  RangeComputer computer(network.context(), 4);
  const NeuronRange range = network.context().ranges.Of(0, 0);
  ExpectComputes(network, computer, range, All(range, 2), {.mode = FfnMode::kExact}, 2);
}

TEST(RangeComputer, OfNothingIsNothing) {
  SmallNetwork network;
  RangeComputer computer(network.context(), 1);
  const SmallInput input(1);
  const NeuronRange range = network.context().ranges.Of(0, 0);
  const FfnStep step = input.Step({.mode = FfnMode::kSign});
  computer.Decide(step, range, All(range, 1), 0);
  EXPECT_EQ(computer.Decide(step, range, NeuronList(), 0).list.count, 0);
}

}  // namespace
}  // namespace thermocline::ffn
