// Live neurons are joined in their order, as a whole or in parts.
#include "engine/ffn/live_neurons.h"

#include <gtest/gtest.h>

#include "engine/ffn/range_ids.h"
#include "tests/engine/ffn/small_network.h"

namespace thermocline::ffn {
namespace {

constexpr int kTokens = 3;
const NeuronRanges kRanges(kNeurons, nullptr);

// A distinct value for each neuron and token. Neurons whose number is a multiple of 10 are zero for
// all tokens, odd ones for token 1.
float H(int id, int token) {
  if (id % 10 == 0 || (id % 2 == 1 && token == 1)) return 0;
  return static_cast<float>(id + 10000 * (token + 1));
}

struct Part {
  NeuronList list;
  std::vector<float> h = std::vector<float>(kTokens * kRange);

  void Add(int id) {
    for (int t = 0; t < kTokens; ++t)
      h[static_cast<std::size_t>(t * kRange + list.count)] = H(id, t);
    list.Add(id, 7);
  }
};

bool IsLive(int id) { return id % 3 != 1; }

// Expects every id whose h is not zero for all tokens, with its values.
void ExpectJoined(LiveNeurons& live, int tokens) {
  const FoundNeurons found = live.Join(kRanges.NumRanges(0), tokens);
  std::size_t k = 0;
  int num_live = 0;
  for (int id = 0; id < kNeurons; ++id) {
    if (!IsLive(id)) continue;
    ++num_live;
    if (id % 10 == 0) continue;
    ASSERT_LT(k, found.ids.size());
    ASSERT_EQ(found.ids[k], id);
    for (int t = 0; t < tokens; ++t)
      ASSERT_EQ(found.h[static_cast<std::size_t>(t * found.stride) + k], H(id, t)) << id;
    ++k;
  }
  EXPECT_EQ(k, found.ids.size());
  EXPECT_EQ(live.num_live(), num_live);
  EXPECT_EQ(found.skip_zeros, tokens > 1);
}

TEST(LiveNeurons, JoinsWhatRangesPut) {
  LiveNeurons live(kNeurons, kTokens);
  for (int round = 0; round < 2; ++round) {  // the previous round leaves no data
    for (int r = 2; r >= 0; --r) {
      Part part;
      const NeuronRange range = kRanges.Of(0, r);
      for (int i = 0; i < range.count; ++i)
        if (IsLive(range.id(i))) part.Add(range.id(i));
      live.Put(range, part.list, part.h.data(), kTokens);
    }
    ExpectJoined(live, kTokens);
    ExpectJoined(live, 1);
  }
}

// Some of the expected neurons are live, some of these arrive late, and some never.
TEST(LiveNeurons, JoinsWhatComesInParts) {
  LiveNeurons live(kNeurons, kTokens);
  for (int round = 0; round < 2; ++round) {
    for (int r = 0; r < 3; ++r) {
      Part here, late, expected;
      const NeuronRange range = kRanges.Of(0, r);
      for (int i = 0; i < range.count; ++i) {
        const int id = range.id(i);
        if (IsLive(id) || id % 2 == round) expected.Add(id);
        if (IsLive(id)) ((id / 7) % 2 == 0 ? here : late).Add(id);
      }
      live.Expect(range, expected.list, kTokens);
      for (const Part* part : {&here, &late}) live.Add(range, part->list, part->h.data(), kTokens);
    }
    ExpectJoined(live, kTokens);
  }
}

TEST(RangeIds, JoinsAndClears) {
  RangeIds ids(kNeurons);
  EXPECT_TRUE(ids.all().empty());
  std::vector<int> want;
  for (int r = 0; r < 3; ++r) {
    const NeuronRange range = kRanges.Of(0, r);
    std::vector<int> mine;
    for (int i = 0; i < range.count; ++i)
      if (range.id(i) % (r + 2) == 0) mine.push_back(range.id(i));
    ids.Put(range, mine);
    want.insert(want.end(), mine.begin(), mine.end());
  }
  for (int round = 0; round < 2; ++round) {
    const auto joined = ids.Join(3);
    EXPECT_EQ(std::vector<int>(joined.begin(), joined.end()), want);
    EXPECT_EQ(ids.all().size(), want.size());
    ids.Clear();
    EXPECT_TRUE(ids.all().empty());
  }
  EXPECT_EQ(ids.Join(1).size(), 256U);
}

}  // namespace
}  // namespace thermocline::ffn
