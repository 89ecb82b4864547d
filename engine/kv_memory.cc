#include "engine/kv_memory.h"

namespace thermocline {
namespace {

constexpr std::int64_t kPrefixBlocksMax = 1 << 24;

// Blocks of keys and values that finished requests may keep, and of all.
struct KvBlocks {
  std::int64_t prefix, all;
};
KvBlocks CountBlocks(const model::ModelConfig& config, KvType type, int context,
                     std::int64_t prefix_cache_bytes) {
  const std::int64_t block_bytes = nn::KvPool::BlockBytes(config, type);
  const int context_blocks = nn::BlocksFor(context);
  const std::int64_t kept =
      prefix_cache_bytes < 0 ? context_blocks : prefix_cache_bytes / block_bytes;
  return {kept, context_blocks + 1 + kept};
}

}  // namespace

std::size_t KvBytes(const EngineConfig& config, const model::ModelConfig& model, int context) {
  const KvType type = config.model.kv_type;
  const KvBlocks blocks = CountBlocks(model, type, context, config.serving.prefix_cache_bytes);
  return blocks.all * nn::KvPool::BlockBytes(model, type);
}

Result<KvMemory> TakeKvMemory(const EngineConfig& config, const load::LoadedModel& model) {
  const int model_context = model.config.max_position_embeddings;
  const int context = model.context;
  if (context > model_context) {
    return base::InvalidArgument("context_length is ", context, ", but the model was made for ",
                                 model_context);
  }
  const KvBlocks blocks =
      CountBlocks(model.config, model.kv_type, context, config.serving.prefix_cache_bytes);
  if (blocks.prefix > kPrefixBlocksMax)
    return base::InvalidArgument("prefix_cache_bytes is ", config.serving.prefix_cache_bytes, ", ",
                                 blocks.prefix, " blocks; at most ", kPrefixBlocksMax,
                                 " are supported");
  ASSIGN_OR_RETURN(auto pool, nn::KvPool::Create({.config = model.config,
                                                  .blocks = static_cast<int>(blocks.all),
                                                  .type = model.kv_type}));
  return KvMemory{std::move(pool), context, static_cast<int>(blocks.prefix)};
}

}  // namespace thermocline
