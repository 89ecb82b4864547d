// The prefix cache of a model with recurrent layers: snapshots of its state decide where a sequence
// can go on.
#include <gtest/gtest.h>

#include "engine/model/model_file.h"
#include "engine/model/open/open_model.h"
#include "engine/nn/prefix_cache.h"

namespace thermocline::nn {
namespace {

const std::string kHybrid = SOURCE_DIR "/tests/golden/architectures/lfm2/model.gguf";

std::vector<int> Numbers(int first, int count) {
  std::vector<int> out;
  for (int i = 0; i < count; ++i) out.push_back(first + i);
  return out;
}

// A pool of 8 states, whose sequences are never computed: a state's first float says behind which
// token it is.
class PrefixStatesTest : public testing::Test {
 protected:
  void SetUp() override {
    auto file = model::OpenModelFile(kHybrid);
    ASSERT_TRUE(file.ok());
    file_ = *std::move(file);
    pool_ = *KvPool::Create({.config = file_->config, .blocks = 40, .states = 8, .pending = 4});
  }

  // Computes up to `end` tokens, as a request that is computed whole does.
  static void ComputeTo(KvCache& cache, int end) {
    EXPECT_TRUE(cache.Reserve(end - cache.length()));
    cache.Advance(end - cache.length());
    cache.state()[0] = static_cast<float>(end);
    cache.SetStateLength(end);
  }
  // Looks up, computes and keeps. Returns the tokens found.
  int Request(PrefixCache& prefixes, const std::vector<int>& tokens, std::string_view owner = "") {
    KvCache cache(*pool_, 512);
    const int found = prefixes.RestorePrefix(owner, tokens, cache);
    EXPECT_EQ(cache.length(), found);
    if (found > 0) {
      EXPECT_EQ(cache.state()[0], static_cast<float>(found));
    }
    EXPECT_EQ(cache.state_length(), found);
    ComputeTo(cache, static_cast<int>(tokens.size()));
    prefixes.Keep(owner, tokens, cache);
    return found;
  }

  std::unique_ptr<model::ModelFile> file_;
  std::unique_ptr<KvPool> pool_;
};

TEST_F(PrefixStatesTest, AreFoundAtTheEndOfWhatWasComputedAlone) {
  PrefixCache prefixes(*pool_, {20, 0, 4});
  EXPECT_EQ(Request(prefixes, Numbers(1, 100)), 0);
  EXPECT_EQ(Request(prefixes, Numbers(1, 130)), 100);
  EXPECT_EQ(Request(prefixes, Numbers(1, 90)), 0);  // the state is behind token 100
  EXPECT_EQ(prefixes.shared(), 89);
  EXPECT_EQ(prefixes.counters().states, 3);
}

TEST_F(PrefixStatesTest, BelongToTheTokensBeforeThem) {
  PrefixCache prefixes(*pool_, {20, 0, 6});
  std::vector<int> other = Numbers(1, 70);
  other.back() = 999;
  Request(prefixes, Numbers(1, 70));
  EXPECT_EQ(Request(prefixes, other), 0);
  Request(prefixes, Numbers(1, 66));  // inside the same block as both ends
  other.push_back(5);
  other[69] = 888;
  EXPECT_EQ(Request(prefixes, other), 66);
  EXPECT_EQ(prefixes.shared(), 69);
}

TEST_F(PrefixStatesTest, AreNotSharedByOwners) {
  PrefixCache prefixes(*pool_, {20, 0, 6});
  Request(prefixes, Numbers(1, 100), "a");
  EXPECT_EQ(Request(prefixes, Numbers(1, 130), "b"), 0);
  EXPECT_EQ(Request(prefixes, Numbers(1, 130), "a"), 100);
}

TEST_F(PrefixStatesTest, TheOneUsedLongestAgoGoesFirstAndAllAreGivenBack) {
  {
    PrefixCache prefixes(*pool_, {20, 0, 2});
    Request(prefixes, Numbers(1, 50));
    Request(prefixes, Numbers(101, 50));
    Request(prefixes, Numbers(1, 60));  // uses the first, and takes the second's place
    EXPECT_EQ(prefixes.counters().states, 2);
    EXPECT_EQ(Request(prefixes, Numbers(101, 70)), 0);
    EXPECT_EQ(pool_->states().free_states(), 6);
  }
  EXPECT_EQ(pool_->states().free_states(), 8);
}

TEST_F(PrefixStatesTest, GoBeforeASequenceLacksOne) {
  PrefixCache prefixes(*pool_, {20, 0, 8});
  for (int i = 0; i < 9; ++i) Request(prefixes, Numbers(100 * i, 20));
  EXPECT_LE(pool_->states().free_states(), 1);
  EXPECT_TRUE(prefixes.MakeRoom({0, 0, 3}));
  EXPECT_GE(pool_->states().free_states(), 3);
}

TEST_F(PrefixStatesTest, ASequenceRollsBackToAnyTokenWhoseInputsAreKept) {
  KvCache cache(*pool_, 512);
  ComputeTo(cache, 40);
  EXPECT_TRUE(cache.Reserve(4));
  cache.Advance(4);  // a step whose tokens may be refused
  cache.SetLength(42);
  EXPECT_TRUE(cache.has_state());
  EXPECT_EQ(cache.state_length(), 40);
  cache.SetLength(39);
  EXPECT_FALSE(cache.has_state());
  PrefixCache prefixes(*pool_, {20, 0, 4});
  prefixes.Keep("", Numbers(1, 39), cache);
  EXPECT_EQ(prefixes.counters().states, 0);
  cache.Clear();
  ComputeTo(cache, 10);
  EXPECT_TRUE(cache.has_state());
}

TEST_F(PrefixStatesTest, ANewSequenceBeginsWithZeros) {
  {
    KvCache cache(*pool_, 512);
    ComputeTo(cache, 10);
  }
  KvCache cache(*pool_, 512);
  EXPECT_TRUE(cache.Reserve(1));
  EXPECT_EQ(cache.state()[0], 0);
}

}  // namespace
}  // namespace thermocline::nn
