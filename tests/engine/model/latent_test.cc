// Values that deepseek2's files omit, and the split of attn_kv_b into two tensors.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/gguf/metadata.h"
#include "engine/model/latent_attention.h"

namespace thermocline::model {
namespace {

constexpr int kHeads = 2, kNope = 3, kRope = 2, kValue = 16, kRank = 16;

Status Numbered(std::int64_t row, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(row) * 100 + static_cast<float>(i);
  return OkStatus();
}

ModelFile Deepseek(int blocks, int vocabulary) {
  ModelFile model;
  Json::Object keys;
  keys.emplace_back("general.architecture", "deepseek2");
  const auto set = [&](const std::string& key, std::int64_t value) {
    keys.emplace_back("deepseek2." + key, value);
  };
  set("embedding_length", 32);
  set("feed_forward_length", 32);
  set("block_count", blocks);
  set("context_length", 64);
  set("attention.head_count", kHeads);
  set("attention.kv_lora_rank", kRank);
  set("attention.key_length", kNope + kRope);
  set("attention.value_length", kValue);
  set("rope.dimension_count", kRope);
  set("expert_count", 4);
  set("expert_used_count", 2);
  model.metadata = Json(std::move(keys));
  model.AddMatrix("token_embd.weight", vocabulary, 32, Numbered);
  return model;
}

TEST(Latent, AFileThatDoesNotSayItsRouterHasSoftmaxUnlessItIsGlmFlash) {
  const auto gating = [](int blocks, int vocabulary) {
    const auto config = ConfigFromMetadata(Deepseek(blocks, vocabulary));
    EXPECT_TRUE(config.ok()) << config.status().message();
    return config->experts.router.gating;
  };
  EXPECT_EQ(gating(47, 154880), Gating::kSigmoid);
  EXPECT_EQ(gating(48, 154880), Gating::kSigmoid);
  EXPECT_EQ(gating(27, 154880), Gating::kSoftmax);
  EXPECT_EQ(gating(47, 102400), Gating::kSoftmax);
}

TEST(Latent, TheHeadsSizesAreThoseOfTheAbsorbedForm) {
  const auto config = ConfigFromMetadata(Deepseek(2, 64));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->head_dim, kRank + kRope);
  EXPECT_EQ(config->num_key_value_heads, 1);
  EXPECT_EQ(config->latent.qk_nope_head_dim, kNope);
  EXPECT_DOUBLE_EQ(config->attention_scale, 1 / std::sqrt(5.0));
}

TEST(Latent, KeysAreTurnedAndValuesFound) {
  ModelFile model = Deepseek(2, 64);
  model.config = *ConfigFromMetadata(model);
  model.AddMatrix("blk.0.attn_kv_b.weight", kHeads * (kNope + kValue), kRank, Numbered);
  ASSERT_TRUE(SplitLatent(model).ok());
  EXPECT_EQ(model.Find("blk.0.attn_kv_b.weight"), nullptr);
  const TensorInfo* keys = model.Find("blk.0.attn_k_b.weight");
  ASSERT_NE(keys, nullptr);
  EXPECT_EQ(keys->rows, kHeads * kRank);
  std::vector<float> row(kNope);
  // Row 5 of head 1: column 5 of the three rows of K_1, which begin after head 0's 19.
  ASSERT_TRUE(model.ReadRows(*keys, kRank + 5, 1, std::as_writable_bytes(std::span(row))).ok());
  EXPECT_EQ(row, (std::vector<float>{1905, 2005, 2105}));
  const TensorInfo* values = model.Find("blk.0.attn_v_b.weight");
  ASSERT_NE(values, nullptr);
  EXPECT_EQ(values->slabs, kHeads);
  EXPECT_EQ(values->order.StoredRow(0), kNope);
  EXPECT_EQ(values->order.StoredRow(kValue + 1), kNope + kValue + kNope + 1);
}

TEST(Latent, ATensorOfAnotherShapeIsRefused) {
  ModelFile model = Deepseek(2, 64);
  model.config = *ConfigFromMetadata(model);
  model.AddMatrix("blk.0.attn_kv_b.weight", 7, kRank, Numbered);
  const Status status = SplitLatent(model);
  EXPECT_NE(status.message().find("attn_kv_b"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace thermocline::model
