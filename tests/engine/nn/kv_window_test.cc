// Layers with a window keep only the tokens that they need, with unchanged bits: compares a
// sequence that frees passed blocks, rolls back, or continues a cached prefix, with one that keeps
// all.
#include <gtest/gtest.h>

#include "engine/load/loaded_model.h"
#include "engine/nn/prefix_cache.h"

namespace thermocline::nn {
namespace {

constexpr int kContext = 768, kBlocks = 40;

using Floats = std::vector<float>;

// Models with both kinds of layers, and with windows only; all windows are 8 tokens.
class KvWindowTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    load::LoadOptions options;
    options.model.path = std::string(SOURCE_DIR "/tests/golden/architectures/") + GetParam();
    options.model.threads = 2;
    auto model = load::LoadModel(options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *std::move(model);
    ASSERT_EQ(model_->config.sliding_window, 8);
    transformer_ = model_->MakeTransformer(64, kContext);
  }

  std::unique_ptr<KvPool> Pool(int window_blocks, kernels::KvType type = kernels::KvType::kF16) {
    return *KvPool::Create({.config = model_->config,
                            .blocks = kBlocks,
                            .type = type,
                            .window_blocks = window_blocks});
  }
  std::vector<int> Tokens(int first, int count) const {
    std::vector<int> out;
    for (int i = 0; i < count; ++i)
      out.push_back((first + i) * 37 % (model_->config.vocab_size - 1) + 1);
    return out;
  }
  // Logits after the last of `tokens`, which are not in `cache` yet.
  Floats Append(KvCache& cache, std::span<const int> tokens, int chunk) {
    std::span<const float> logits;
    for (std::size_t at = 0; at < tokens.size();) {
      const std::size_t count = std::min(static_cast<std::size_t>(chunk), tokens.size() - at);
      logits = *transformer_->Forward(tokens.subspan(at, count), cache,
                                      exec::Transformer::Logits::kLast);
      at += count;
    }
    return {logits.begin(), logits.end()};
  }

  std::unique_ptr<load::LoadedModel> model_;
  std::unique_ptr<exec::Transformer> transformer_;
};

TEST_P(KvWindowTest, WhatIsPassedIsGivenBackAndNoBitChanges) {
  const auto tokens = Tokens(0, 700);
  const auto from = [&](int at, int count) {
    return std::span(tokens).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
  };
  for (const auto type : {kernels::KvType::kF16, kernels::KvType::kQ4_0}) {
    if (kernels::IsQuantized(type) && model_->config.head_dim % 32 != 0) continue;
    const auto whole = Pool(0, type);
    // A window, the tokens that may be rolled back, and a step's tokens.
    const auto apart = Pool(WindowBlocks(8) + BlocksFor(64) + 1, type);
    EXPECT_LT(apart->bytes(), whole->bytes());
    KvCache all(*whole, kContext), windows(*apart, kContext);
    for (const auto& [at, count, chunk] : {std::array{0, 1, 1}, std::array{1, 333, 64},
                                           std::array{334, 60, 1}, std::array{394, 200, 33}}) {
      const Floats want = Append(all, from(at, count), chunk);
      ASSERT_EQ(Append(windows, from(at, count), chunk), want) << "at " << at;
    }
    EXPECT_LT(windows.held().window, all.held().whole);
    // Rolls back as after rejected drafts.
    for (KvCache* cache : {&all, &windows}) cache->SetLength(594 - kKvSlack);
    const Floats want = Append(all, from(594 - kKvSlack, 200), 7);
    EXPECT_EQ(Append(windows, from(594 - kKvSlack, 200), 7), want);
    windows.Clear();
    EXPECT_EQ(apart->free_blocks(KvKind::kWindow), apart->blocks(KvKind::kWindow));
    EXPECT_EQ(apart->free_blocks(), kBlocks);
  }
}

TEST_P(KvWindowTest, APrefixIsFoundAsFarAsItsWindowsAreThere) {
  const auto pool = Pool(14);
  PrefixCache prefixes(*pool, {20, 6});
  auto tokens = Tokens(0, 600);
  const auto ask = [&](int count) {
    KvCache cache(*pool, kContext), cold(*pool, kContext);
    const auto asked = std::span(tokens).first(static_cast<std::size_t>(count));
    const int found = prefixes.RestorePrefix("", asked, cache);
    const Floats warm = Append(cache, asked.subspan(static_cast<std::size_t>(found)), 50);
    prefixes.Keep("", asked, cache);
    cache.Clear();
    EXPECT_EQ(warm, Append(cold, asked, 50)) << count << " tokens, found " << found;
    return found;
  };
  EXPECT_EQ(ask(600), 0);
  // Continues at its end, and a little before; not where the windows' blocks were freed.
  EXPECT_EQ(ask(600), 599);
  EXPECT_EQ(ask(500), 499);
  EXPECT_EQ(ask(100), 0);
  EXPECT_GT(prefixes.counters().evicted_tokens, 0);
  EXPECT_EQ(ask(100), 64);  // cached again, as far as blocks are full
  EXPECT_EQ(ask(140), 64);
  EXPECT_EQ(ask(140), 128);
  tokens[90] += tokens[90] > 1 ? -1 : 1;
  EXPECT_EQ(ask(300), 90);
  prefixes.Clear();
  EXPECT_EQ(pool->free_blocks(KvKind::kWindow), 14);
  EXPECT_EQ(pool->free_blocks(), kBlocks);
  EXPECT_EQ(prefixes.counters().window_blocks, 0);
}

TEST_P(KvWindowTest, BlocksOfAnotherPoolStayThatPools) {
  const auto lender = Pool(8), pool = Pool(8);
  const auto tokens = Tokens(5, 420);
  const auto some = std::span(tokens);
  KvCache target(*lender, kContext), draft(*pool, kContext);
  Append(target, some.first(300), 64);
  draft.Share(target, 300);
  EXPECT_EQ(pool->free_blocks(KvKind::kWindow), 8);
  EXPECT_EQ(Append(draft, some.subspan(300), 40), Append(target, some.subspan(300), 40));
  draft.Clear();
  EXPECT_EQ(pool->free_blocks(KvKind::kWindow), 8);
}

INSTANTIATE_TEST_SUITE_P(Families, KvWindowTest, testing::Values("gemma3", "gpt_oss", "mistral"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace thermocline::nn
