#include "engine/exec/kv_cache.h"

namespace thermocline::exec {

Result<KvCache> KvCache::Create(const model::ModelConfig& config, int capacity) {
  KvCache cache;
  cache.heads_ = config.num_key_value_heads;
  cache.capacity_ = capacity;
  cache.stride_ = (config.head_dim + 15) / 16 * 16;
  const std::size_t row_bytes = static_cast<std::size_t>(cache.stride_) * sizeof(std::uint16_t);
  const std::size_t rows = static_cast<std::size_t>(config.num_hidden_layers) *
                           static_cast<std::size_t>(cache.heads_) * 2;
  auto memory = base::HugeBuffer::Allocate(rows * row_bytes * static_cast<std::size_t>(capacity));
  if (!memory.ok()) {
    return memory.status().Annotate(
        StrCat("KV cache of ", capacity, " tokens (lower engine.context_length)"));
  }
  cache.memory_ = *std::move(memory);
  return cache;
}

}  // namespace thermocline::exec
