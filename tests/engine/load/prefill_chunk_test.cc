// Tokens of a prefill step: more if each step reads many experts for few tokens each.
#include <gtest/gtest.h>

#include "engine/load/loaded_model.h"

namespace thermocline::load {
namespace {

int ChunkOf(int experts, int used) {
  model::ModelConfig config;
  config.architecture = *model::FindArchitecture("llama");
  config.experts.num_experts = experts;
  config.experts.num_experts_per_tok = used;
  return PrefillChunk(config);
}

TEST(PrefillChunk, GivesEachExpertSixteenTokensWithinBounds) {
  EXPECT_EQ(ChunkOf(0, 0), 64);     // dense
  EXPECT_EQ(ChunkOf(8, 2), 64);     // Mixtral
  EXPECT_EQ(ChunkOf(32, 4), 128);   // SmallThinker 4B
  EXPECT_EQ(ChunkOf(64, 6), 192);   // SmallThinker 21B
  EXPECT_EQ(ChunkOf(128, 8), 256);  // Qwen3 30B-A3B
  EXPECT_EQ(ChunkOf(512, 10), 256);
}

}  // namespace
}  // namespace thermocline::load
