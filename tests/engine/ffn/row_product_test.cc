// Products of chosen rows are those of the scalar definition, in either layout.
#include "engine/ffn/row_product.h"

#include <gtest/gtest.h>

#include "tests/engine/ffn/small_network.h"

namespace thermocline::ffn {
namespace {

// ids empty: all of the range.
void ExpectProducts(SmallNetwork& network, const NeuronRange& range, const std::vector<int>& ids,
                    int tokens) {
  const SmallInput input(tokens);
  const int count = ids.empty() ? range.count : static_cast<int>(ids.size()), stride = kRange + 3;
  std::vector<float> out(static_cast<std::size_t>(tokens * stride), -1);
  Multiply(network.context(),
           {.matrix = network.weights.layers[0].up,
            .hidden = input.get().hidden,
            .tokens = tokens,
            .range = range,
            .ids = ids.empty() ? range.ids() : ids.data(),
            .count = count,
            .out = out.data(),
            .out_stride = stride},
           /*thread=*/0);
  for (int t = 0; t < tokens; ++t) {
    for (int k = 0; k < count; ++k) {
      const int id = ids.empty() ? range.id(k) : ids[static_cast<std::size_t>(k)];
      ASSERT_NEAR(static_cast<double>(out[static_cast<std::size_t>(t * stride + k)]),
                  network.layers[0].up.Times(id, input.x(t)), 1e-4)
          << "token " << t << ", neuron " << id;
    }
  }
}

TEST(RowProduct, OfWholeRangesInBothLayouts) {
  for (const model::Layout layout : {model::Layout::kRows, model::Layout::kPanels}) {
    for (const bool bias : {false, true}) {
      SmallNetwork network({.layout = layout, .bias = bias});
      for (int range = 0; range < 3; ++range)
        for (const int tokens : {1, 3, 16})
          ExpectProducts(network, network.context().ranges.Of(0, range), {}, tokens);
    }
  }
}

TEST(RowProduct, OfChosenRows) {
  SmallNetwork network({.bias = true});
  const NeuronRange range = network.context().ranges.Of(0, 1);
  for (const int tokens : {1, 5}) {
    ExpectProducts(network, range, {range.begin}, tokens);
    ExpectProducts(network, range, {range.begin + 1, range.begin + 17, range.begin + 511}, tokens);
  }
}

TEST(RowProduct, OfMembers) {
  const auto members = SomeMembers(1);
  SmallNetwork network({.bias = true, .members = &members});
  const FfnContext context = network.context();
  ASSERT_EQ(context.ranges.NumRanges(0), 1);
  ExpectProducts(network, context.ranges.Of(0, 0), {}, 4);
}

TEST(NeuronRanges, CoverEveryMemberOnce) {
  const auto members = SomeMembers(2);
  for (const auto* of : {&members, static_cast<decltype(&members)>(nullptr)}) {
    const NeuronRanges ranges(kNeurons, of);
    for (int l = 0; l < 2; ++l) {
      std::vector<int> seen;
      for (int r = 0; r < ranges.NumRanges(l); ++r) {
        const NeuronRange range = ranges.Of(l, r);
        EXPECT_EQ(range.begin, static_cast<int>(seen.size()));
        EXPECT_LE(range.count, kRange);
        for (int i = 0; i < range.count; ++i) seen.push_back(range.id(i));
      }
      std::vector<int> want = members[static_cast<std::size_t>(l)];
      if (of == nullptr) {
        want.clear();
        for (int i = 0; i < kNeurons; ++i) want.push_back(i);
      }
      EXPECT_EQ(seen, want);
    }
  }
}

}  // namespace
}  // namespace thermocline::ffn
