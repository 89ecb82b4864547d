#include "engine/nn/kv_pool.h"

namespace thermocline::nn {

std::size_t KvPool::BlockBytes(const model::ModelConfig& config, kernels::KvType type) {
  return static_cast<std::size_t>(config.NumKvLayers()) * config.num_key_value_heads *
         (kernels::KeyBlockBytes(type, config.head_dim) +
          kernels::ValueBlockBytes(type, config.head_dim));
}

Result<std::unique_ptr<KvPool>> KvPool::Create(const Params& p) {
  if (kernels::IsQuantized(p.type) && p.config.head_dim % kernels::kActivationBlock != 0) {
    return base::InvalidArgument("a ", kernels::Traits(kernels::KeyType(p.type)).name,
                                 " KV cache needs heads of a multiple of 32 dimensions; this "
                                 "model's have ",
                                 p.config.head_dim, ": use f16");
  }
  auto pool = std::unique_ptr<KvPool>(new KvPool());
  pool->type_ = p.type;
  pool->heads_ = p.config.num_key_value_heads;
  pool->key_bytes_ = kernels::KeyBlockBytes(p.type, p.config.head_dim);
  pool->value_bytes_ = kernels::ValueBlockBytes(p.type, p.config.head_dim);
  pool->block_bytes_ = BlockBytes(p.config, p.type);
  auto memory = base::HugeBuffer::Allocate(pool->block_bytes_ * p.blocks);
  if (!memory.ok()) {
    return memory.status().Annotate(StrCat("KV cache of ", p.blocks * kernels::kKvBlock,
                                           " tokens (lower engine.context_length or "
                                           "engine.prefix_cache_bytes)"));
  }
  pool->memory_ = *std::move(memory);
  pool->holders_.resize(p.blocks);
  for (int block = p.blocks - 1; block >= 0; --block) pool->free_.push_back(block);
  return pool;
}

int KvPool::Take() {
  if (free_.empty()) return -1;
  const int block = free_.back();
  free_.pop_back();
  holders_[block] = 1;
  return block;
}

void KvPool::Release(int block) {
  int& holders = holders_[block];
  CHECK(holders > 0);
  if (--holders == 0) free_.push_back(block);
}

}  // namespace thermocline::nn
