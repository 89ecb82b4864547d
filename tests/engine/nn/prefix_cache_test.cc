// The prefix cache as a tree of blocks; a hit gives the bits of a cold run.
#include "engine/nn/prefix_cache.h"

#include <gtest/gtest.h>

#include "engine/load/loaded_model.h"

namespace thermocline::nn {
namespace {

const std::string kModel = SOURCE_DIR "/config/models/tidepool.gguf";

std::vector<int> Tokens(int first, int count) {
  std::vector<int> out;
  for (int i = 0; i < count; ++i) out.push_back(300 + (first + i) * 37 % 1500);
  return out;
}

std::vector<int> Join(std::vector<int> a, const std::vector<int>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A pool whose sequences are never computed, for tests of the bookkeeping alone.
class PrefixCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    auto model = load::LoadModel(Options());
    ASSERT_TRUE(model.ok());
    model_ = *std::move(model);
    pool_ = *KvPool::Create({.config = model_->config, .blocks = 40});
  }
  static load::LoadOptions Options() {
    load::LoadOptions options;
    options.model.path = kModel;
    options.model.threads = 2;
    return options;
  }

  // Looks up, fills and keeps a prefix, as a request does. Returns the tokens found.
  int Request(PrefixCache& prefixes, const std::vector<int>& tokens, std::string_view owner = "") {
    KvCache cache(*pool_, 512);
    const int found = prefixes.RestorePrefix(owner, tokens, cache);
    EXPECT_EQ(cache.length(), found);
    EXPECT_TRUE(cache.Reserve(static_cast<int>(tokens.size()) - found));
    cache.Advance(static_cast<int>(tokens.size()) - found);
    prefixes.Keep(owner, tokens, cache);
    return found;
  }

  std::unique_ptr<load::LoadedModel> model_;
  std::unique_ptr<KvPool> pool_;
};

TEST_F(PrefixCacheTest, FindsTheLongestPrefixToTheToken) {
  PrefixCache prefixes(*pool_, {20});
  const auto system = Tokens(0, 100), first = Join(system, Tokens(500, 50)),
             second = Join(system, Tokens(900, 60));
  EXPECT_EQ(Request(prefixes, first), 0);
  EXPECT_EQ(Request(prefixes, second), 100);  // inside the second block
  EXPECT_EQ(Request(prefixes, first), 149);   // all but the last token
  EXPECT_EQ(Request(prefixes, Join(first, Tokens(7, 30))), 150);
  EXPECT_EQ(Request(prefixes, Tokens(1, 80)), 0);
  const auto& c = prefixes.counters();
  EXPECT_EQ(c.hits, 1);
  EXPECT_EQ(c.partial, 2);
  EXPECT_EQ(c.misses, 2);
  EXPECT_EQ(c.hit_tokens, 100 + 149 + 150);
  EXPECT_EQ(c.evicted_tokens, 0);
}

TEST_F(PrefixCacheTest, TellsWhereAPromptDiffersFromAStoredOne) {
  PrefixCache prefixes(*pool_, {20});
  const auto system = Tokens(0, 100), stored = Join(system, Tokens(500, 50));
  const auto differs = [&](const std::vector<int>& prompt) {
    Request(prefixes, prompt);
    return prefixes.differs_at();
  };
  EXPECT_EQ(differs(stored), -1);
  EXPECT_EQ(differs(Join(stored, Tokens(7, 30))), -1);  // goes on
  EXPECT_EQ(differs(Tokens(0, 90)), -1);                // a part
  EXPECT_EQ(differs(Join(system, Tokens(900, 60))), 100);
  EXPECT_EQ(differs(Join(Tokens(0, 128), Tokens(900, 9))),
            100);                         // Tokens(0, 128) goes on otherwise
  EXPECT_EQ(differs(Tokens(3, 80)), -1);  // shares nothing
  auto changed = stored;
  changed[70] = 1;
  EXPECT_EQ(differs(changed), 70);
  // Twenty tokens of the stored sequence, across the end of its block.
  changed[70] = system[70];
  changed[120] = 2;
  EXPECT_EQ(differs(changed), 120);
  const auto instead = prefixes.stored_instead();
  EXPECT_TRUE(
      std::equal(instead.begin(), instead.end(), stored.begin() + 120, stored.begin() + 140));
}

TEST_F(PrefixCacheTest, KeepsItsBoundAndForgetsTheOldestFirst) {
  const int free_before = pool_->free_blocks();
  {
    PrefixCache prefixes(*pool_, {4});
    const auto a = Tokens(0, 128), b = Tokens(400, 128), c = Tokens(800, 128);
    Request(prefixes, a);
    Request(prefixes, b);
    EXPECT_EQ(prefixes.counters().blocks, 4);
    EXPECT_EQ(Request(prefixes, a), 127);  // a is more recent than b now
    Request(prefixes, c);
    EXPECT_EQ(prefixes.counters().blocks, 4);
    EXPECT_EQ(pool_->free_blocks(), free_before - 4);
    EXPECT_EQ(Request(prefixes, a), 127);
    EXPECT_EQ(Request(prefixes, b), 0);
    EXPECT_EQ(prefixes.counters().evicted_tokens, 64);  // the full block of the 127 tokens
    EXPECT_GE(prefixes.counters().evictions, 2);
  }
  EXPECT_EQ(pool_->free_blocks(), free_before);  // no block is lost
}

TEST_F(PrefixCacheTest, AnOwnerFindsOnlyWhatItHasComputed) {
  PrefixCache prefixes(*pool_, {20});
  const auto secret = Tokens(0, 100);
  EXPECT_EQ(Request(prefixes, secret, "alice"), 0);
  EXPECT_EQ(Request(prefixes, secret, "mallory"), 0);
  EXPECT_EQ(Request(prefixes, secret, ""), 0);
  EXPECT_EQ(Request(prefixes, secret, "alice"), 99);
  EXPECT_EQ(prefixes.counters().hit_tokens, 99);
}

TEST_F(PrefixCacheTest, AnOwnerOverItsShareGivesItsOwnBlocksUp) {
  std::chrono::steady_clock::time_point now;
  PrefixCache prefixes(*pool_, {8}, [&now] { return now; });
  const auto chat = Tokens(0, 128);
  Request(prefixes, chat, "alice");
  for (int i = 1; i < 12; ++i) Request(prefixes, Tokens(i * 97, 128), "mallory");
  EXPECT_EQ(Request(prefixes, chat, "alice"), 127);
  // An owner that is idle for long loses its share to others.
  now += 2 * PrefixCache::kIdle;
  for (int i = 1; i < 12; ++i) Request(prefixes, Tokens(i * 101, 128), "mallory");
  EXPECT_EQ(Request(prefixes, chat, "alice"), 0);
}

TEST_F(PrefixCacheTest, ASequenceLargerThanTheBoundKeepsItsBeginning) {
  PrefixCache prefixes(*pool_, {2});
  const auto tokens = Tokens(0, 300);
  Request(prefixes, tokens);
  EXPECT_EQ(prefixes.counters().blocks, 2);
  EXPECT_EQ(Request(prefixes, tokens), 128);
}

TEST_F(PrefixCacheTest, ZeroBlocksKeepNothing) {
  PrefixCache prefixes(*pool_, {0});
  Request(prefixes, Tokens(0, 100));
  EXPECT_EQ(Request(prefixes, Tokens(0, 100)), 0);
  EXPECT_EQ(pool_->free_blocks(), 40);
}

TEST_F(PrefixCacheTest, WhoContinuesASharedBlockCopiesIt) {
  PrefixCache prefixes(*pool_, {20});
  const auto tokens = Tokens(0, 70);
  Request(prefixes, tokens);
  KvCache one(*pool_, 512), two(*pool_, 512);
  EXPECT_EQ(prefixes.RestorePrefix("", tokens, one), 69);
  EXPECT_EQ(prefixes.RestorePrefix("", tokens, two), 69);
  EXPECT_EQ(one.blocks()[1], two.blocks()[1]);
  EXPECT_TRUE(one.Reserve(1));
  EXPECT_EQ(one.blocks()[0], two.blocks()[0]);  // full blocks stay shared
  EXPECT_NE(one.blocks()[1], two.blocks()[1]);
}

// Logits after the last token, using the cache; the rest is computed in chunks.
std::vector<float> LastLogits(const load::LoadedModel& model, KvPool& pool, PrefixCache* prefixes,
                              const std::vector<int>& tokens, int chunk, int* found) {
  const auto transformer = model.MakeTransformer(chunk, 512);
  KvCache cache(pool, 512);
  *found = prefixes != nullptr ? prefixes->RestorePrefix("", tokens, cache) : 0;
  std::span<const float> logits;
  for (std::size_t at = static_cast<std::size_t>(*found); at < tokens.size();) {
    const std::size_t count = std::min(static_cast<std::size_t>(chunk), tokens.size() - at);
    logits = *transformer->Forward(std::span(tokens).subspan(at, count), cache,
                                   exec::Transformer::Logits::kLast);
    at += count;
  }
  if (prefixes != nullptr) prefixes->Keep("", tokens, cache);
  return {logits.begin(), logits.end()};
}

TEST_F(PrefixCacheTest, AHitGivesTheBitsOfAColdRun) {
  for (const auto type : {kernels::KvType::kF16, kernels::KvType::kF32, kernels::KvType::kQ8_0,
                          kernels::KvType::kQ4_0}) {
    const auto pool = *KvPool::Create({.config = model_->config, .blocks = 40, .type = type});
    const auto system = Tokens(0, 150), question = Join(system, Tokens(700, 77));
    int found = 0;
    for (const int chunk : {1, 7, 64, 256}) {
      // Kept by prefill, and as decoding computes them, one at a time.
      PrefixCache prefixes(*pool, {20});
      LastLogits(*model_, *pool, &prefixes, system, chunk == 7 ? 64 : 1, &found);
      const auto cold = LastLogits(*model_, *pool, nullptr, question, chunk, &found);
      const auto warm = LastLogits(*model_, *pool, &prefixes, question, chunk, &found);
      EXPECT_EQ(found, 150);
      EXPECT_EQ(warm, cold) << "chunk " << chunk << " type " << static_cast<int>(type);
    }
  }
}

}  // namespace
}  // namespace thermocline::nn
