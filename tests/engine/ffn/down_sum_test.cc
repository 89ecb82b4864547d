// Sums over down rows and products with down's columns are those of the scalar definition.
#include "engine/ffn/down_sum.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/ffn/small_network.h"

namespace thermocline::ffn {
namespace {

using kernels::DType;

// Some neurons' h, and their FoundNeurons.
struct SomeFound {
  std::vector<int> ids;
  std::vector<float> h;
  int stride;

  SomeFound(int every, int tokens) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    for (int i = 1; i < kNeurons; i += every) ids.push_back(i);
    stride = static_cast<int>(ids.size()) + 5;
    h.resize(static_cast<std::size_t>(tokens * stride));
    for (float& value : h) value = random() % 4 == 0 ? 0 : normal(random);
  }
  FoundNeurons get(bool skip_zeros = true) { return {ids, h.data(), stride, skip_zeros}; }
  double Sum(const SmallNetwork::Matrix& down, bool columns, int token, int col, bool bias) const {
    double sum = bias && !down.bias.empty()
                     ? static_cast<double>(down.bias[static_cast<std::size_t>(col)])
                     : 0;
    for (std::size_t k = 0; k < ids.size(); ++k)
      sum += static_cast<double>(h[static_cast<std::size_t>(token * stride) + k]) *
             static_cast<double>(columns ? down.at(col, ids[k]) : down.at(ids[k], col));
    return sum;
  }
};

void ExpectSum(const std::vector<float>& out, const SmallNetwork& network, const SomeFound& some,
               int tokens, bool bias, double tolerance) {
  const bool columns = network.weights.layers[0].down_rows.rows == 0;
  for (int t = 0; t < tokens; ++t) {
    for (int c = 0; c < kHidden; ++c)
      ASSERT_NEAR(static_cast<double>(out[static_cast<std::size_t>(t * kHidden + c)]),
                  some.Sum(network.layers[0].down, columns, t, c, bias), tolerance)
          << "token " << t << ", column " << c;
  }
}

TEST(DownSum, AddsRowsOfTheFound) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    SmallNetwork network({.type = type, .bias = true});
    DownSum down(network.context());
    for (const int tokens : {1, 5}) {
      for (const int every : {1, 7, 400}) {
        SomeFound some(every, tokens);
        std::vector<float> out(static_cast<std::size_t>(tokens * kHidden), -1);
        for (const bool bias : {true, false}) {
          down.SumRows(0, tokens, some.get(tokens > 1), out.data(), bias);
          ExpectSum(out, network, some, tokens, bias, type == DType::kQ8_0 ? 2e-2 : 1e-3);
        }
      }
    }
  }
}

TEST(DownSum, OfNothingIsTheBias) {
  SmallNetwork network({.bias = true});
  DownSum down(network.context());
  std::vector<float> out(kHidden, -1);
  down.SumRows(0, 1, {}, out.data(), true);
  EXPECT_EQ(out, network.layers[0].down.bias);
}

TEST(DownSum, MultipliesColumns) {
  SmallNetwork network({.down_rows = false});
  DownSum down(network.context());
  nn::ActivationBuffer h;
  h.Resize(4, kNeurons);
  std::fill(h.x.begin(), h.x.end(), 100.0F);  // left by the previous layer
  for (const int tokens : {1, 4}) {
    SomeFound some(5, tokens);
    std::vector<float> out(static_cast<std::size_t>(tokens * kHidden), -1);
    down.MultiplyColumns(0, tokens, some.get(), h, out.data());
    ExpectSum(out, network, some, tokens, true, 1e-3);
    // The same again from an array with every neuron's h.
    std::vector<float> again(out.size(), -1);
    std::vector<int> all(kNeurons);
    for (int i = 0; i < kNeurons; ++i) all[static_cast<std::size_t>(i)] = i;
    down.MultiplyColumns(0, tokens, {all, h.x.data(), kNeurons, false}, h, again.data());
    EXPECT_EQ(again, out);
  }
}

// Two partitions' parts, finished together, have the bits of one sum.
TEST(DownSum, SharesOneSumAmongPartitions) {
  constexpr int kTokens = 3, kRuns = kernels::NumSumRuns(kNeurons), kSums = kRuns * kHidden;
  SmallNetwork network({.type = DType::kQ8_0});
  DownSum down(network.context());
  SomeFound some(2, kTokens);
  std::vector<float> whole(kTokens * kHidden);
  down.SumRows(0, kTokens, some.get(), whole.data(), false);
  struct Side {
    SomeFound found{1, 0};
    std::vector<float> maxima = std::vector<float>(kTokens * kSums / 32);
    std::vector<std::int32_t> high = std::vector<std::int32_t>(kTokens * kSums), low = high;
  } sides[2];
  for (int s = 0; s < 2; ++s) {
    SomeFound& mine = sides[s].found;
    mine.ids.clear();
    mine.stride = some.stride;
    mine.h.assign(some.h.size(), 0);
    for (std::size_t k = 0; k < some.ids.size(); ++k) {
      if (static_cast<int>(k % 3 == 0) != s) continue;
      for (int t = 0; t < kTokens; ++t)
        mine.h[static_cast<std::size_t>(t * mine.stride) + mine.ids.size()] =
            some.h[static_cast<std::size_t>(t * some.stride) + k];
      mine.ids.push_back(some.ids[k]);
    }
    down.SumSharedRows(0, kTokens, mine.get(), {.maxima = sides[s].maxima.data()});
  }
  std::vector<float> limits = sides[0].maxima;
  for (std::size_t i = 0; i < limits.size(); ++i)
    limits[i] = std::max(limits[i], sides[1].maxima[i]);
  for (Side& side : sides)
    down.SumSharedRows(0, kTokens, side.found.get(),
                       {.limits = limits.data(), .high = side.high.data(), .low = side.low.data()});
  std::vector<float> out(whole.size());
  for (int t = 0; t < kTokens; ++t) {
    SmallNetwork::ops().finish_sum(
        {.runs = kRuns,
         .cols = kHidden,
         .limits = limits.data() + t * kSums / 32,
         .num_parts = 2,
         .parts = {{sides[0].high.data() + t * kSums, sides[0].low.data() + t * kSums},
                   {sides[1].high.data() + t * kSums, sides[1].low.data() + t * kSums}},
         .col_begin = 0,
         .col_end = kHidden,
         .out = out.data() + t * kHidden});
  }
  EXPECT_EQ(out, whole);
}

}  // namespace
}  // namespace thermocline::ffn
