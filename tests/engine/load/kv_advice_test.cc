// Advice on the type of the KV cache: where it is given, and what it estimates.
#include "engine/load/kv_advice.h"

#include <gtest/gtest.h>

namespace thermocline::load {
namespace {

using kernels::KvType;

// The shape of Qwen2.5 1.5B.
model::ModelConfig Config() {
  model::ModelConfig config;
  config.architecture = *model::FindArchitecture("qwen2");
  config.num_hidden_layers = 28;
  config.hidden_size = 1536;
  config.intermediate_size = 8960;
  config.num_attention_heads = 12;
  config.num_key_value_heads = 2;
  config.head_dim = 128;
  config.vocab_size = 151'936;
  config.tie_word_embeddings = true;
  return config;
}

std::string Advice(const model::ModelConfig& config, KvType type, int context, const char* isa) {
  kernels::OpTable ops = kernels::ReferenceOps();
  ops.name = isa;
  return KvAdvice(config, type, context, ops);
}

// Measured with 16,699 tokens: 1.66 times (docs/benchmarks.md).
TEST(KvAdvice, IsGivenWhereAttentionTakesMuchOfALongPrompt) {
  EXPECT_NE(Advice(Config(), KvType::kF16, 16'384, "avx512").find("about 1.6 times"),
            std::string::npos);
  EXPECT_NE(Advice(Config(), KvType::kF16, 32'768, "amx"), "");
}

TEST(KvAdvice, IsSilentWhereNothingIsKnownOrGained) {
  EXPECT_EQ(Advice(Config(), KvType::kQ8_0, 16'384, "avx512"), "");
  EXPECT_EQ(Advice(Config(), KvType::kF16, 16'384, "avx2"), "");  // its gain was not measured
  EXPECT_EQ(Advice(Config(), KvType::kF16, 1024, "avx512"), "");
  model::ModelConfig odd = Config();
  odd.head_dim = 80;
  EXPECT_EQ(Advice(odd, KvType::kF16, 16'384, "avx512"), "");  // not a multiple of 32
}

}  // namespace
}  // namespace thermocline::load
